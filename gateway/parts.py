"""The parts of a gateway, in the order in which their routes are tried. A new part is added here."""

from collections.abc import Sequence

from .cluster_access import ClusterAccess
from .process.metrics import Metrics
from .process.part import Part
from .rest.part import RestPart
from .services.part import GrpcServices
from .settings import REGISTRY, Settings


def parts_of(settings: Settings, access: ClusterAccess, metrics: Metrics) -> Sequence[Part]:
    parts: list[Part] = [GrpcServices(settings, access, metrics)]
    service = registry_access = None
    if settings.flag(REGISTRY):
        from .registry.part import RegistryPart

        registry = RegistryPart(settings, access, metrics)
        service, registry_access = registry.service, registry.access
        parts.append(registry)
    parts.append(RestPart(settings, access, metrics, service, registry_access))
    return parts
