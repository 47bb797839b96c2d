"""SASL mechanisms, server and client side: bytes in, data out. No sockets, clocks or randomness of their own.

A server exchange is one login attempt. The connection (broker/security/sasl/pre_auth.py) gives it each message of the
client and acts on the step that it returns:

    exchange = ...                                      one object per attempt, made by the mechanism's factory
    exchange.respond(message) -> Challenge(data)        send `data`, expect another message
                              -> Authenticated(...)     the login is complete
                              -> Failed(...)            the login is over; the reason is for the log only
                              -> Computation(run)       `run()` takes milliseconds of CPU and returns one of the others;
                                                        the connection runs it in a worker thread

A mechanism plugs in by a class with `respond` (`ServerExchange`), and a factory `() -> ServerExchange` that is
registered under the mechanism's name in broker/security/mechanisms.py. What an exchange has to look up, such as a
credential, is a callable argument: SCRAM calls `credentials(name)`, or `tokens(name)` if the client sends
`tokenauth=true`. Nonces and keys are arguments.

A client exchange (`ClientExchange`) is the mirror image: `respond(b"")` is the first message, `respond(challenge)` the
next one, and None means that the login is complete. `client_exchange` in client.py makes one. It raises
`ServerNotAuthenticated` if the server does not prove that it knows the password.
"""
