"""UpdateFeatures (57): upgrades or downgrades feature levels of the cluster, all or none of them.

v0 upgrades only; Kafka ignores its flag for downgrades · v1 upgrade type and validate_only · v2 no results per feature:
they all succeed, or the response has only an error
"""

from typing import TYPE_CHECKING

from trioka.cluster.controller.controller import Controller
from trioka.cluster.decision import Decision, ItemResult
from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.internal_records.metadata import NoOpRecord
from trioka.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

from ..api import handles
from ..quorum.voters import name_voters

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    return _to_result(request, ItemResult(error=type(error), message=str(error)))


@handles(UpdateFeaturesRequest, error_response=error_response, forwards=True)
async def update_features(broker: "Broker", call: "Call", request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    broker.guard.must(call, AclOperation.ALTER)

    def decide(controller: Controller) -> Decision[ItemResult]:
        controller.settings = broker.controller_settings()  # the set of voters may have changed
        decision = controller.update_features(request.feature_updates, validate_only=request.validate_only)
        if any(isinstance(record, NoOpRecord) for record in decision.records):
            name_voters(broker)
        return decision

    (outcome,) = (await broker.quorum.change(decide)).replies
    return _to_result(request, outcome)


def _to_result(request: UpdateFeaturesRequest, outcome: ItemResult) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=outcome.code,
        error_message=outcome.message,
        results=[
            UpdateFeaturesResponse.Result(feature=update.feature, error_code=0, error_message="NONE")
            for update in (request.feature_updates if outcome.error is None else ())
        ],
    )
