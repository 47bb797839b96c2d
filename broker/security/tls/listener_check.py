"""Checks that the TLS and SASL settings of a node's listeners, and of its connections to other nodes, can be honoured.

`serve --check`, `config lint` and every start call it. It reads the key stores, as the start does later, so that a
setting that cannot be honoured gives a one-sentence error before anything is opened.
"""

from ...config import security_keys as keys
from ...config.layers import Config
from ...config.listeners import Node
from .peer_security import NodeSecurity
from .store_files import is_readable_by_others


def check_security(config: Config, node: Node) -> tuple[str, ...]:
    """Returns remarks about key files; raises ConfigError. Imports TLS and SASL modules only if a listener uses
    them."""
    NodeSecurity(node, lambda: config).check()
    secured = [endpoint for endpoint in node.listeners if endpoint.protocol.tls]
    if not secured:
        return ()
    from .context import server_context

    remarks: dict[str, None] = {}
    for endpoint in secured:
        server_context(config, endpoint.name, is_sasl=endpoint.protocol.sasl)
        location = config.of_listener(endpoint.name, keys.SSL_KEYSTORE_LOCATION)
        if location and is_readable_by_others(location):
            remarks[f"{location} has a private key, and users other than its owner may read it: use chmod 600."] = None
    return tuple(remarks)
