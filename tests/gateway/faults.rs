//! What users of other programs reported about context, tool calls, order, providers, jobs and sub-agents, and the test
//! that would find it here. What is named here is a test that exists.

use std::collections::BTreeSet;

use crate::tidy::sources;

/// The report, and the test.
const ORDER: &[(&str, &str)] = &[
    ("messages of one session run at the same time", "messages_that_come_through_different_doors_queue_in_one_session"),
    ("idle removal of the session queue lets two turns run", "leased_mail_is_never_lost"),
    (
        "two dispatches on one lane wait for each other for ever",
        "a_tool_that_asks_its_own_gateway_about_its_own_session_is_answered",
    ),
    ("process waits for a file lock that it holds itself", "a_lock_that_nobody_holds_is_taken_whatever_stands_in_it"),
    ("recovery aborts the run, the lane is not released", "a_crash_cancels_the_call_and_the_turn_runs_again"),
    ("aborting a turn empties the queue behind it", "stop_is_answered_while_a_turn_runs_and_the_queue_goes_on"),
    ("each new message resets the stuck timer", "new_messages_do_not_reset_the_timer_and_tokens_do"),
    (
        "a message between sessions races the user's turn",
        "messages_that_come_through_different_doors_queue_in_one_session",
    ),
    ("replies to one recipient are sent out of order", "replies_keep_their_order_over_a_pause_of_the_receiver"),
    ("one user's long turn blocks all users", "two_hundred_clients_get_each_answer_once_and_in_order"),
    ("a global processing lock", "turns_of_a_stopped_model_server_are_given_up_and_nobody_else_waits_for_it"),
    ("background model calls bypass the gate", "a_wait_for_a_place_has_no_limit_and_who_gives_up_is_told_nothing"),
    ("the direct call path has no session lock", "messages_that_come_through_different_doors_queue_in_one_session"),
    (
        "/new races consolidation: messages are archived twice or lost",
        "the_next_part_begins_where_the_last_one_ended_also_inside_of_what_was_kept",
    ),
    ("keys `a_b` and `a:b` share one file", "distinct_keys_have_distinct_stems"),
    ("a permit is kept while polling", "a_call_holds_its_place_until_it_ends"),
    ("a lane starves some of those who wait", "a_session_with_nothing_running_comes_before_one_that_asks_twice"),
];

const TOOL_CALLS: &[(&str, &str)] = &[
    ("arguments are a string inside a string", "an_object_survives_up_to_two_strings_around_it"),
    ("arguments are a JSON string where an object is expected", "odd_arguments_are_read_and_named"),
    ("a nested object as a string", "what_is_meant_is_made_right"),
    ("a tool call as XML in the text", "a_call_written_as_text_is_a_call_only_where_that_is_allowed"),
    ("ids are used again in a later turn", "repeated_call_ids_are_told_apart_within_a_turn"),
    ("concurrent tools swap ids", "results_stand_behind_their_calls_in_order"),
    ("an id is too long for another provider", "an_id_of_another_provider_is_made_to_fit_in_call_and_result_alike"),
    ("content blocks without a type", "odd_fields_are_as_good_as_absent"),
    ("an empty tool name", "a_call_without_a_name_is_explained_to_the_model_and_not_run"),
    ("two results for one call", "results_stand_behind_their_calls_in_order"),
    ("the iteration limit leaves calls without results", "too_many_rounds_end_in_a_summary"),
    (
        "the same call again and again without progress",
        "a_call_that_changes_nothing_is_not_run_a_fourth_time_and_costs_the_tools_in_the_end",
    ),
    ("text after the JSON turns arguments into {}", "odd_arguments_are_read_and_named"),
    ("a call without a result poisons the session", "every_transcript_and_budget_gives_a_legal_request"),
    ("a stream index that is not 0 loses arguments", "parts_of_calls_find_each_other"),
    ("a nullable parameter as \"\"", "what_is_meant_is_made_right"),
    ("partial arguments are doubled while streaming", "ids_and_names_that_come_with_every_piece_are_counted_once"),
    ("reasoning is missing or doubled on resend", "reasoning_goes_back_once_and_only_where_it_is_wanted"),
];

/// That a pool of keys never rotates cannot be found: a provider has one key.
const CONTEXT: &[(&str, &str)] = &[
    ("a connection that ends without terminator counts as success", "cut_and_truncated_streams_are_failures"),
    (
        "a cut stream is stored as an empty success",
        "a_stream_that_breaks_before_its_first_word_is_asked_again_and_never_stored_as_an_answer",
    ),
    ("[DONE] came, the socket stays open, the turn hangs", "the_end_mark_ends_an_answer_whose_connection_stays_open"),
    ("no idle read timeout", "silence_ends_a_call"),
    ("CRLF between events is not split", "deviations_are_read"),
    ("`data:` without the space is ignored", "deviations_are_read"),
    ("Retry-After is ignored", "a_wait_that_a_provider_asks_for_is_capped"),
    ("a rate limit is recognised by English text alone", "classes_follow_code_then_status"),
    ("a cooldown grows without end", "one_call_tries_and_the_time_doubles_up_to_the_cap"),
    ("overload is taken for a rate limit, that for an auth error", "classes_follow_code_then_status"),
    ("a billing cap costs 390 failing calls", "an_account_without_credit_is_asked_once_and_not_for_each_message"),
    ("413 is not treated as overflow", "a_model_that_refuses_a_request_as_too_long_gets_a_shorter_one_once"),
    ("big tool results survive compaction", "big_results_of_the_running_turn_go_before_the_conversation"),
    ("consolidation fails silently", "whatever_the_model_does_instead_the_last_time_the_part_is_archived_as_it_is"),
    ("consolidation wipes the pending delivery", "replies_that_wait_outlive_a_compaction_and_a_kill"),
    (
        "old tool failures teach the model that a tool is broken",
        "what_failed_or_was_a_picture_is_told_shorter_in_later_turns",
    ),
];

/// Of a job that waits for a worker there is no report here: a job is a message of its session, and needs no worker.
const CRON: &[(&str, &str)] = &[
    ("a job runs twice after a restart", "a_process_that_dies_runs_no_moment_twice_and_learns_how_its_runs_ended"),
    ("catch-up ignores the time zone", "each_moment_of_a_year_is_used_once_whatever_dies"),
    ("the ambiguous hour at the end of summer time", "a_clock_put_back"),
    ("an `at` that is only a date", "single_times"),
    (
        "a reload while a job runs: it runs twice, or a job with one moment is missed",
        "a_file_that_others_change_is_merged_with_what_memory_knows_of_runs",
    ),
    ("a job is replayed after a failed save", "a_file_that_cannot_be_written_leaves_memory_in_charge"),
    ("one job is launched twice at a time", "a_run_that_goes_on_is_not_joined_by_another"),
    ("Sunday in a range of weekdays is parsed wrong", "sunday_is_both_ends_of_the_week"),
    ("the poller of triggers hangs for ever", "a_look_that_hangs_is_given_up_and_told_once"),
    ("a stale claim blocks a trigger", "a_delivery_is_claimed_once_and_again_when_it_was_left"),
    (
        "the confirmation of a job is sent twice",
        "the_answer_of_a_job_is_pushed_to_its_chat_once_and_a_failure_is_written_down",
    ),
    ("the heartbeat ignores its hours", "hours_hold_by_the_clocks_of_the_zone_also_over_midnight"),
    ("the heartbeat calls the model without tasks", "without_tasks_or_anybody_to_tell_no_model_is_asked"),
    ("heartbeat and user collide", "what_the_heartbeat_finds_is_sent_to_the_newest_chat_and_stands_in_its_session"),
];

const SUBAGENTS: &[(&str, &str)] = &[
    ("a completion is lost silently", "a_report_outlives_a_kill_while_the_parent_sleeps"),
    (
        "the failure of the first enqueue skips the fallback",
        "a_report_that_is_refused_at_first_waits_is_seen_to_wait_and_comes",
    ),
    (
        "what succeeded and was not delivered never surfaces",
        "a_report_for_a_conversation_that_was_deleted_is_a_dead_letter_and_begins_no_other",
    ),
    ("an incomplete child is reported as success", "one_that_cannot_go_on_has_failed_whatever_it_says"),
    ("the same task is begun twice", "the_same_call_is_the_same_run"),
    ("the result comes as words of the user", "a_report_comes_by_itself_and_is_answered"),
    ("one tool error ends the child", "a_tool_that_fails_ends_a_sub_agent_no_more_than_its_parent"),
    ("/stop or a shutdown leaves processes", "what_a_sub_agent_runs_is_killed_with_it_and_with_the_process"),
    ("a child ignores the configured API address", "a_report_comes_by_itself_and_is_answered"),
    (
        "a message during a delegation detaches the child",
        "what_the_user_says_meanwhile_leaves_a_sub_agent_with_its_parent",
    ),
    ("holes between the child's end and the parent", "each_of_two_hundred_is_reported_once_whatever_is_killed"),
    ("nobody begins background children", "a_report_comes_by_itself_and_is_answered"),
    ("no way to list, ask or stop one child", "an_operator_sees_stops_and_repeats_them"),
];

#[test]
fn each_report_has_its_test() {
    let all = ["actors", "src", "tests/gateway"].into_iter().flat_map(sources);
    let mut tests = BTreeSet::new();
    for (_, text) in all {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let Some((name, _)) = name.and_then(|rest| rest.split_once('('))
                && std::mem::take(&mut is_test)
            {
                tests.insert(name.to_owned());
            }
        }
    }
    for (report, test) in [ORDER, TOOL_CALLS, CONTEXT, CRON, SUBAGENTS].into_iter().flatten() {
        assert!(tests.contains(*test), "{report}: {test} does not exist");
    }
}
