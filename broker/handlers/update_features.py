"""UpdateFeatures (57): raises or lowers the levels at which the cluster works. All of it is done, or nothing.

v0 only raises: that it allows a downgrade, Kafka has ceased to hear · v1 says which kind of change, and may only try it
v2 no longer has a result for each feature, which said nothing: if all is done each is, and if not there are none
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.cluster.controller import Controller
from trioka.cluster.decision import Decision, Outcome
from trioka.protocol.errors import KafkaError
from trioka.protocol.internal_records.metadata import NoOpRecord
from trioka.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

from ..api import handles
from ..quorum.voters import name_voters

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    return _told(request, Outcome(error=type(error), message=str(error)))


@handles(UpdateFeaturesRequest, refuse=refuse, forwards=True)
async def update_features(broker: "Broker", call: "Call", request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    broker.guard.must(call, Operation.ALTER)

    def decide(controller: Controller) -> Decision[Outcome]:
        controller.settings = broker.controller_settings()  # voters come and go
        decision = controller.update_features(request.feature_updates, validate_only=request.validate_only)
        if any(isinstance(record, NoOpRecord) for record in decision.records):
            name_voters(broker)
        return decision

    (outcome,) = (await broker.quorum.change(decide)).replies
    return _told(request, outcome)


def _told(request: UpdateFeaturesRequest, outcome: Outcome) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=outcome.code,
        error_message=outcome.message,
        results=[
            UpdateFeaturesResponse.Result(feature=update.feature, error_code=0, error_message="NONE")
            for update in (request.feature_updates if outcome.error is None else ())
        ],
    )
