"""What a request's body may hold.

An engine trusts its clients: one odd number, a regular expression that explodes or an image from a `file://` address can hang
it, end it or make it read what it should not. So these models list what may pass, with its bounds, and anything else is
refused by name, as OpenAI refuses it. The engine gets the client's own bytes; both sides read them with the same parser.
"""
