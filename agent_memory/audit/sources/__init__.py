"""Where messages come from that are not in one of this library's stores."""
