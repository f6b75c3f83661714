"""The Ray Serve application: its HTTP routes, handle methods and configuration."""
