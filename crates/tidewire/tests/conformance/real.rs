//! Cases that run on this machine's kernel only, and why. All others run on every simulated shape
//! that they are for: the suite checks that no case is left out without a word here, and that no
//! case here is gone or runs there all the same.

use libtest_mimic::Trial;

use crate::case::{Case, Weight};
use crate::variant::{ALL, Variant};

/// What a simulated kernel cannot mean, and the cases that are about it.
const ONLY: [(&str, &[&str]); 15] = [
    (
        "a reset does not overtake what came before it",
        &[
            "a_send_that_fails_inside_layers_takes_no_input_with_it",
            "a_send_that_fails_takes_no_input_with_it",
            "an_abort_after_a_continued_reply_has_sent_it",
            "an_abort_at_an_end_inside_layers_sends_what_was_answered",
            "an_abort_at_the_end_sends_what_was_answered",
        ],
    ),
    (
        "counts or fills this process's memory or descriptors",
        &[
            "crowd_comes_and_goes_without_a_trace",
            "descriptor_exhaustion_and_recovery",
            "direct_connections_have_no_descriptors",
            "ends_arrive_without_a_descriptor_to_spare",
            "handles_do_not_keep_descriptors",
            "handles_of_one_service_cost_others_nothing",
            "idle_connection_costs_at_most_512_bytes",
            "little_words_cost_little_memory",
            "peers_that_never_read_cost_bounded_memory",
            "posts_arrive_without_a_descriptor_to_spare",
        ],
    ),
    (
        "sets options of sockets, or listens where it may not",
        &[
            "an_ipv4_client_of_an_ipv6_listener_is_in_ipv4_networks",
            "places_that_cannot_be_listened_on_say_why",
            "port_in_use_is_an_error",
            "tcp_options_are_applied_or_refused",
            "tcp_options_reach_both_kinds_of_connections",
        ],
    ),
    (
        "inherits listeners, or hands them over",
        &[
            "a_lone_client_is_not_forgotten_between_two_servers",
            "a_stop_leaves_listeners_that_others_have_as_they_were",
            "a_successor_takes_clients_that_have_not_spoken",
            "inherited_listener",
            "inherited_listener_that_is_shut_down",
            "listeners_that_no_successor_took_change_nothing",
            "peer_that_has_reset_before_it_is_accepted_has_its_address",
            "services_whose_silent_clients_are_not_waited_for_long",
            "successor_takes_over_a_unix_socket",
            "successor_takes_over_who_waits",
            "successors_differ_in_their_loops",
        ],
    ),
    (
        "files of Unix sockets, and the process at the other end",
        &[
            "unix_files_of_the_dead_are_replaced_and_ours_removed",
            "unix_peers_are_known",
        ],
    ),
    (
        "what a running server is watched and stopped by",
        &[
            "a_drain_shows_what_it_waits_for",
            "a_drain_tells_lingering_connections",
            "a_stop_is_waited_for",
            "a_stuck_loop_is_told_of_with_service_and_callback",
            "dropping_a_drain_ends_at_once",
            "dropping_ends_at_once",
            "loops_say_how_late_they_answer",
            "services_are_counted_apart",
        ],
    ),
    (
        "threads, processors and engines of this machine",
        &["engine_in_use_is_told", "loops_can_be_pinned"],
    ),
    (
        "a callback waits for what goes on outside of its loop",
        &[
            "a_message_that_is_there_costs_one_receive",
            "a_reply_of_many_slices_arrives_in_one_piece",
            "acceptor_waits_for_loops_that_are_behind",
            "dials_beyond_the_inbox_come_back",
            "many_replies_of_one_turn_leave_in_one_piece_each",
            "messages_arrive_and_leave_in_one_piece",
            "messages_arrive_in_one_piece_where_buffers_are_few",
            "one_write_is_answered_by_one_read",
            "paused_connection_is_told_of_an_end_behind_data",
            "paused_connection_notices_a_reset_behind_data",
        ],
    ),
    (
        "a request that comes together with its connection",
        &["stop_loses_no_client_that_has_just_connected"],
    ),
    (
        "a simulated loop never polls busily",
        &[
            "anything_with_busy_polling",
            "busy_polling_serves_and_counts",
        ],
    ),
    (
        "rules of one listener or service, and what a turn may take, are a builder's",
        &[
            "listener_service_and_all_have_rules_of_their_own",
            "what_is_set_for_a_turn_holds",
        ],
    ),
    (
        "a socket that meets itself is TCP's, and so are urgent bytes",
        &[
            "bytes_behind_an_urgent_mark_arrive",
            "dial_that_reaches_itself_has_failed",
        ],
    ),
    ("the clock on the wall", &["time_is_given"]),
    (
        "starts a builder of its own",
        &[
            "a_service_may_panic_at_its_end",
            "owners_inside_a_layer_may_panic",
        ],
    ),
    (
        "how Linux makes room in its buffers",
        &[
            "a_turn_receives_no_more_than_its_budget",
            "a_turn_receives_what_is_set",
            "a_turn_sends_no_more_than_its_budget",
            "slow_reader_of_a_large_kernel_buffer_is_not_cut",
        ],
    ),
];

/// Why this case does not run on simulated kernels, if it does not.
pub(crate) fn why(case: &str) -> Option<&'static str> {
    let of = ONLY.iter().find(|(_, cases)| cases.contains(&case));
    of.map(|(why, _)| *why)
}

/// The table is of cases that there are; cases that need a process of their own are in it, and all
/// others run on a simulated shape of each engine that they are for.
pub(crate) fn no_case_is_left_out(cases: &[Case]) -> Trial {
    let listed = ONLY.iter().flat_map(|(_, cases)| cases.iter().copied());
    let gone: Vec<String> = listed
        .filter(|name| cases.iter().filter(|case| case.name == *name).count() != 1)
        .map(|name| format!("{name} is listed, and is not one case"))
        .collect();
    let wrong: Vec<String> = cases.iter().filter_map(left_out).chain(gone).collect();
    Trial::test(
        "every_case_runs_on_simulated_kernels_or_says_why",
        move || match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong.join("\n").into()),
        },
    )
}

fn left_out(case: &Case) -> Option<String> {
    let name = case.name;
    match why(name) {
        Some(_) => return None,
        None if case.weight == Weight::Alone => {
            return Some(format!(
                "{name} has a process of its own, and is not listed"
            ));
        }
        None => {}
    }
    let is_for = |v: &&Variant| (case.on)(**v);
    let (simulated, real): (Vec<&Variant>, Vec<&Variant>) =
        ALL.iter().filter(is_for).partition(|v| v.is_simulated());
    let alone = real
        .into_iter()
        .find(|v| simulated.iter().all(|s| s.engine != v.engine));
    alone.map(|v| {
        format!(
            "{name} runs on {v} and on no simulated shape of {}",
            v.engine
        )
    })
}
