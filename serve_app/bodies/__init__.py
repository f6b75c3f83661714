"""What a request's body may hold."""
