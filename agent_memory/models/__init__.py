"""Language models that summarizers may use."""
