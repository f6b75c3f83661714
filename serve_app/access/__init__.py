"""Which requests are allowed: keys, origins, sizes."""
