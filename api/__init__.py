"""The HTTP server: routes that parse, call one method of a service, and answer."""
