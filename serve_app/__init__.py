"""The front door: the Ray Serve application, its HTTP routes and its configuration."""
