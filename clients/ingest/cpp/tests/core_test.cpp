// The state machines and what is around them, without a socket.
#include <tidewire/ingest.hpp>

#include "check.hpp"

using namespace tidewire::ingest;
using namespace tidewire::ingest::detail;

std::vector<std::uint64_t> ids(std::string_view data) {
    std::vector<std::uint64_t> found;
    while (!data.empty()) {
        found.push_back(get<std::uint64_t>(data.data()));
        data.remove_prefix(message_header + get<std::uint32_t>(data.data() + 8));
    }
    return found;
}

// The resend buffer against a list of messages, by random steps.
void the_outbox_is_a_list() {
    struct Pushed {
        std::uint64_t id;
        std::size_t size;
    };
    for (unsigned seed = 0; seed < 300 && failures == 0; ++seed) {
        std::mt19937 chance(seed);
        auto below = [&](std::size_t n) { return static_cast<std::size_t>(chance() % n); };
        Outbox box;
        std::vector<Pushed> model;
        std::size_t sent = 0;
        std::uint64_t next = 1;
        for (int step = 0; step < 80; ++step) {
            auto what = below(5);
            if (what < 2) {
                for (auto n = below(6); n > 0; --n) {
                    auto size = below(10) == 0 ? below(128 << 10) : below(40);
                    box.push(next, std::string(size, 'x'));
                    model.push_back({next, message_header + size});
                    next += 1 + below(3);
                }
            } else if (what == 2) {
                auto messages = 1 + below(12), bytes = 1 + below(128 << 10);
                auto piece = box.next(messages, bytes);
                for (auto id : ids({piece.data, piece.size})) {
                    CHECK(sent < model.size() && model[sent].id == id);
                    ++sent;
                }
                std::size_t in_flight = 0;
                for (std::size_t at = 0; at < sent; ++at) in_flight += model[at].size;
                if (piece.size > 0) CHECK(model[sent - 1].id == piece.last && (sent == 1 || (sent <= messages && in_flight <= bytes)));
            } else if (what == 3 && !model.empty()) {
                // Also beyond what was sent, as a welcome may say.
                auto gone = 1 + below(model.size());
                CHECK(box.acknowledged(model[gone - 1].id) == gone);
                model.erase(model.begin(), model.begin() + static_cast<long>(gone));
                sent -= std::min(sent, gone);
            } else if (what == 4 && sent > 0) {
                sent = below(sent);
                box.rewind(model[sent].id);
            }
            std::size_t bytes = 0, sent_bytes = 0;
            for (std::size_t at = 0; at < model.size(); ++at) {
                bytes += model[at].size;
                if (at < sent) sent_bytes += model[at].size;
            }
            CHECK(box.messages == model.size() && box.bytes == bytes && box.sent_messages == sent && box.sent_bytes == sent_bytes);
            CHECK(box.first_id() == (model.empty() ? std::nullopt : std::optional(model[0].id)));
        }
        if (failures > 0) std::printf("seed %u\n", seed);
    }
}

std::string frame(std::uint8_t kind, std::uint8_t flags, const std::string& body) {
    std::string to{static_cast<char>(kind), static_cast<char>(flags), 0, 0};
    append(to, static_cast<std::uint32_t>(body.size()));
    return to + body;
}

std::string welcome(std::optional<std::uint64_t> last) {
    std::string body("\x02\0\0\0", 4);
    for (std::uint32_t field : {100, 10, 1000}) append(body, field);
    append<std::uint64_t>(body, 1000);
    append<std::uint64_t>(body, last.value_or(0));
    return frame(1, last ? 1 : 0, body);
}

std::string acknowledgement(std::uint64_t id) {
    std::string body;
    append(body, id);
    return frame(2, 0, body);
}

const Clock::time_point now{};

void hear(Session& session, const std::string& data) {
    News news;
    std::size_t done = 0;
    session.received(data, now, news, done);
}

void begin(Session& session, std::optional<std::uint64_t> last) {
    session.connected(now);
    session.greeting();
    hear(session, welcome(last));
}

void messages_are_sent_again_behind_the_mark() {
    ProducerSettings settings;
    settings.name = "p";
    Session session(settings);
    begin(session, 41);
    CHECK(session.next_id() == 42);
    for (std::uint64_t id = 42; id < 47; ++id) {
        session.check(id, 1);
        session.push(id, "x");
    }
    THROWS(WrongId, session.check(48, 1));
    THROWS(MessageTooLarge, session.check(47, 101));
    auto piece = session.output(now);
    CHECK(ids({piece.data, piece.size}).size() == 5);
    session.disconnected();
    begin(session, 44);
    piece = session.output(now);
    CHECK((ids({piece.data, piece.size}) == std::vector<std::uint64_t>{45, 46}));
    THROWS(ProtocolError, hear(session, acknowledgement(45) + acknowledgement(99)));
    CHECK(session.settled == 45);
    session.disconnected();
    THROWS(Lost, begin(session, 44));
    session.disconnected();
    THROWS(NameTaken, begin(session, 47));
}

void silence_is_an_end_only_while_an_answer_is_due() {
    ProducerSettings settings;
    settings.silence = std::chrono::seconds(5);
    Session session(settings);
    begin(session, std::nullopt);
    session.expired(now + std::chrono::hours(1));
    session.push(1, "x");
    session.output(now);
    session.expired(now + std::chrono::seconds(4));
    THROWS(Unanswered, session.expired(now + std::chrono::seconds(5)));
}

void nothing_follows_the_last_id() {
    Session session(ProducerSettings{});
    begin(session, id_max);
    CHECK(!session.next_id());
    THROWS(WrongId, session.check(id_max, 1));
}

void addresses() {
    for (auto* good : {"logs.example:7400", "[::1]:1", "unix:/run/x.sock", "unix:@name"}) CHECK(Address::parse(good).shown() == good);
    for (auto* bad : {"", "host", "host:", ":7400", "host:x", "host:65536", "::1:7400", "unix:", "unix:@", "unix:relative"})
        THROWS(std::invalid_argument, Address::parse(bad));
}

std::chrono::milliseconds pause_after(Attempts& attempts, const Refused& failure, Clock::duration elapsed = {}) {
    try {
        throw failure;
    } catch (const Error& caught) {
        return attempts.pause_after(caught, elapsed);
    }
}

void pauses_double_to_the_longest_and_end_in_time() {
    Refused stopping(Reason::stopping, 0, "", 0);
    Attempts attempts(Address::parse("a:1"), {});
    THROWS(Refused, pause_after(attempts, stopping));  // The first failure is final.
    attempts.succeeded();
    for (int whole : {50, 100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
        auto pause = pause_after(attempts, stopping).count();
        CHECK(whole / 2 <= pause && pause <= whole);
    }
    Refused late(Reason::disk_full, 0, "", 3'600'000);
    CHECK(pause_after(attempts, late, std::chrono::seconds(50)) == std::chrono::seconds(10));
    THROWS(GaveUp, pause_after(attempts, late, std::chrono::seconds(60)));
    THROWS(Refused, pause_after(attempts, Refused(Reason::unauthorised, 0, "", 0)));
}

void a_server_that_is_named_is_asked_in_turn_with_the_first() {
    Connecting how;
    how.retry.moves = 2;
    Attempts attempts(Address::parse("a:1"), how);
    attempts.succeeded();
    const char* const steps[][2] = {{"b:1", "b:1"}, {"c:1", "c:1"}, {"d:1", "a:1"}, {"unix:/x", "c:1"}, {"", "a:1"}};
    for (auto& step : steps) {
        pause_after(attempts, Refused(Reason::moved, 0, step[0], 0));
        CHECK(attempts.address().shown() == step[1]);
    }
}

void settings_that_cannot_be_sent() {
    ProducerSettings settings;
    settings.stream = "a\nb";
    THROWS(std::invalid_argument, Session{settings});
    settings.stream = std::string(256, 'x');
    THROWS(std::invalid_argument, Session{settings});
    ReaderSettings reading;
    reading.cursor = "a\xc2\x85";
    THROWS(std::invalid_argument, Reader::begin("127.0.0.1:1", reading));
    reading.cursor = "\xff";
    THROWS(std::invalid_argument, Reader::begin("127.0.0.1:1", reading));
}

void what_a_terminal_would_obey_is_escaped() {
    CHECK(printable("a\x1b[2J") == "a\\x1b[2J");
    CHECK(printable("gr\xc3\xb6\xc3\x9f""e") == "gr\xc3\xb6\xc3\x9f""e");
    CHECK(printable("\xc2\x9b") == "\\xc2\x9b");
}

int main() {
    run("the outbox is a list", the_outbox_is_a_list);
    run("messages are sent again behind the mark", messages_are_sent_again_behind_the_mark);
    run("silence is an end only while an answer is due", silence_is_an_end_only_while_an_answer_is_due);
    run("nothing follows the last id", nothing_follows_the_last_id);
    run("addresses", addresses);
    run("pauses double to the longest and end in time", pauses_double_to_the_longest_and_end_in_time);
    run("a server that is named is asked in turn with the first", a_server_that_is_named_is_asked_in_turn_with_the_first);
    run("settings that cannot be sent", settings_that_cannot_be_sent);
    run("what a terminal would obey is escaped", what_a_terminal_would_obey_is_escaped);
    return failures > 0;
}
