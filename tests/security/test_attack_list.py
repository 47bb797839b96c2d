"""The forty attacks of the security tests, by number, and the tests that carry them out.

Some attacks have parts that are tested elsewhere, where the part is: the exchange of SCRAM, a TLS transport, the keys
of a configuration. This file runs nothing; it finds out when a test of the list is no longer there.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
BEFORE, SASL, TLS, CLIENTS = (
    "security/test_before_login_attacks.py",
    "security/test_sasl_attacks.py",
    "security/test_tls_attacks.py",
    "security/test_tls_hostile_clients.py",
)
OAUTH, KEYS, LOGINS, STEPS, RIGHTS = (
    "security/test_oauth_attacks.py",
    "security/test_issuer_keys.py",
    "security/test_logins.py",
    "security/test_login_steps.py",
    "security/test_rights_attacks.py",
)
TOKENS, QUOTAS, SCRAM, CONNECTIONS = (
    "security/test_token_attacks.py",
    "security/test_quota_attacks.py",
    "protocol/sasl/test_scram.py",
    "broker/network/test_tls_connections.py",
)

ATTACKS: dict[int, tuple[tuple[str, str], ...]] = {
    1: ((BEFORE, "test_attack_1_no_api_is_served_before_the_login"),),
    2: ((BEFORE, "test_attack_2_sasl_authenticate_before_the_handshake_closes"),),
    3: ((SASL, "test_attack_3_an_unknown_mechanism_is_told_the_list"),),
    5: ((SASL, "test_attack_5_api_versions_is_asked_once"),),
    6: ((SASL, "test_attack_6_a_second_handshake_ends_the_login"),),
    8: (
        (SASL, "test_attack_8_and_9_a_frame_before_the_login_is_small"),
        (SASL, "test_attack_8_requests_before_the_login_take_little_memory_together"),
        (BEFORE, "test_attack_8_a_client_that_does_not_go_on_is_closed"),
    ),
    9: ((BEFORE, "test_attack_9_a_header_with_many_tagged_fields_closes"),),
    12: (
        (TLS, "test_others_are_served_during_many_handshakes"),
        (TLS, "test_later_handshakes_wait_in_the_backlog"),
    ),
    13: (
        (SASL, "test_attack_13_another_protocol_is_named"),
        (TLS, "test_a_foreign_protocol_is_closed_and_named_once"),
        (TLS, "test_tls_to_a_plaintext_listener_is_closed_and_named"),
    ),
    15: ((SASL, "test_attack_15_raw_messages_of_strange_sizes_close"),),
    16: ((SASL, "test_attack_16_plain_messages_that_are_none_are_refused"),),
    17: ((STEPS, "test_attack_17_a_plain_login_takes_the_same_steps_for_unknown_users"),),
    19: (
        (SASL, "test_attack_19_a_replayed_login_fails"),
        (SCRAM, "test_the_nonce_of_old_librdkafka_is_explained"),
    ),
    20: (
        (SASL, "test_attack_20_an_unknown_user_has_the_same_salt_after_a_restart"),
        (STEPS, "test_attack_20_a_scram_login_takes_the_same_steps_for_unknown_users"),
    ),
    21: ((SASL, "test_attack_21_23_25_scram_messages_that_are_none_are_refused"),),
    23: ((SASL, "test_attack_21_23_25_scram_messages_that_are_none_are_refused"),),
    25: ((SASL, "test_attack_21_23_25_scram_messages_that_are_none_are_refused"),),
    26: (
        (SASL, "test_attack_26_credentials_that_are_too_weak_are_refused"),
        (SASL, "test_attack_26_without_the_right_no_credential_is_set"),
    ),
    29: (
        (OAUTH, "test_unsigned_tokens_and_those_with_a_shared_secret_are_refused"),
        (OAUTH, "test_every_algorithm_works_with_its_own_type_of_key_and_no_other"),
    ),
    30: (
        (KEYS, "test_what_is_not_safe_stops_the_start"),
        (LOGINS, "test_a_listener_that_could_not_check_tokens_stops_the_start"),
    ),
    31: (
        (OAUTH, "test_times_are_numbers_and_within_the_clock_skew"),
        (OAUTH, "test_issuer_and_audience_are_compared_whole"),
        (OAUTH, "test_the_subject_is_a_name"),
    ),
    32: (
        (OAUTH, "test_a_header_that_brings_or_names_a_key_is_refused"),
        (LOGINS, "test_attack_32_nobody_is_asked_for_the_key_that_a_token_brings_or_names"),
    ),
    35: (
        (KEYS, "test_redirects_are_not_followed"),
        (KEYS, "test_an_answer_that_never_ends_is_given_up"),
        (KEYS, "test_an_unknown_key_makes_it_fetch_and_a_failure_keeps_the_old_keys"),
    ),
    36: (
        (KEYS, "test_only_some_addresses_may_have_keys"),
        (KEYS, "test_an_open_http_address_stops_the_start_even_if_it_is_allowed"),
    ),
    38: ((LOGINS, "test_the_session_ends_with_the_bearer_token_or_with_the_longest_session"),),
    39: ((TLS, "test_old_versions_of_tls_are_refused"), (TLS, "test_weak_suites_are_refused")),
    40: (
        (TLS, "test_a_bad_client_certificate_is_refused_with_one_audit_line"),
        (CLIENTS, "test_a_certificate_signed_with_sha_1_is_refused"),
    ),
    42: ((TLS, "test_a_certificate_that_maps_to_no_name_is_closed"),),
    45: (
        (CLIENTS, "test_renegotiation_is_refused"),
        (CLIENTS, "test_records_without_content_end_the_connection"),
        (CLIENTS, "test_requests_for_new_keys_without_end_disturb_no_other_client"),
    ),
    46: (
        (CLIENTS, "test_a_produce_in_records_of_one_byte_is_served"),
        (CONNECTIONS, "test_a_client_that_does_not_read_holds_no_more_than_the_limit"),
    ),
    48: (
        (TLS, "test_a_new_file_is_loaded_and_a_bad_one_is_not"),
        (TLS, "test_stores_are_replaced_by_kafka_configs"),
    ),
    49: (
        (SASL, "test_attack_49_a_re_authentication_changes_neither_name_nor_mechanism"),
        ("broker/security/test_pre_auth.py", "test_a_re_authentication_needs_an_end_and_a_second"),
    ),
    51: (
        (RIGHTS, "test_attack_51_a_right_that_is_taken_away_is_missing_at_the_next_request"),
        (RIGHTS, "test_attack_51_a_fetch_session_does_not_keep_a_right"),
        (RIGHTS, "test_attack_51_a_transaction_does_not_keep_a_right"),
        (RIGHTS, "test_attack_51_a_fetch_that_waits_is_answered_as_by_kafka_and_the_next_is_refused"),
        (RIGHTS, "test_attack_51_a_right_that_was_taken_away_stays_away_after_a_snapshot_and_a_restart"),
        (RIGHTS, "test_attack_51_on_three_brokers_each_refuses_once_it_knows"),
    ),
    52: (("security/test_produce_attacks.py", "test_attack_52_a_batch_of_a_transaction_or_a_broker_is_refused"),),
    53: (
        (RIGHTS, "test_attack_53_a_client_is_no_node"),
        (RIGHTS, "test_attack_53_a_client_at_the_listener_of_controllers_is_no_node"),
    ),
    55: (
        (TOKENS, "test_a_wrong_hmac_finds_no_token"),
        (TOKENS, "test_a_stranger_neither_renews_nor_expires_nor_sees_a_token"),
        (TOKENS, "test_a_token_for_another_owner_needs_create_tokens"),
        (TOKENS, "test_without_a_secret_key_tokens_are_switched_off"),
        ("security/test_token_logins.py", "test_attack_55_sessions_end_on_all_nodes_when_their_token_is_expired"),
    ),
    56: (
        (QUOTAS, "test_many_connections_with_ever_new_client_ids_get_no_more_than_the_quota"),
        (QUOTAS, "test_a_client_that_does_not_wait_is_not_read_from"),
    ),
    58: (
        (QUOTAS, "test_a_second_topic_of_a_thousand_partitions_is_refused"),
        (QUOTAS, "test_a_client_of_an_old_version_is_only_made_to_wait"),
        (QUOTAS, "test_a_flood_of_connections_is_let_in_at_the_rate_of_its_address"),
    ),
    59: (("security/test_planted_secrets.py", "test_attack_59_no_planted_secret_is_told"),),
    60: (
        (TLS, "test_a_listener_that_cannot_be_secured_stops_the_start"),
        (TLS, "test_a_key_that_others_may_read_is_a_remark_only"),
        ("security/test_nodes_without_rights.py", "test_a_node_without_rights_stays_outside_until_it_has_them"),
    ),
}


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_there_are_forty_attacks() -> None:
    assert len(ATTACKS) == 40


@pytest.mark.parametrize("number", ATTACKS)
def test_an_attack_has_its_tests(number: int) -> None:
    for path, name in ATTACKS[number]:
        assert name in functions_of(path), f"attack {number}: there is no {name} in tests/{path} any more"
