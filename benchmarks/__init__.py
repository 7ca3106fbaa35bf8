"""Benchmarks: ``python -m benchmarks`` lists them. Ratios are taken within one run."""
