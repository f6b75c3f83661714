"""Who may come in: keys, origins, sizes."""
