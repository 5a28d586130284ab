// One producer's conversation with a server, over as many connections as it takes: a state machine without socket and clock. A
// message has its id, and stands in the resend buffer, before a byte of it is written.
#pragma once

#include <chrono>

#include "outbox.hpp"

namespace tidewire::ingest {

using Clock = std::chrono::steady_clock;

// What a producer wants of the server, and what it may use here.
struct ProducerSettings {
    std::string stream;  // empty for `default`
    // Without a name nothing outlives a connection: messages that were not acknowledged when it broke are sent again, and may be
    // stored twice.
    std::string name;
    std::string token;  // a secret, where the server asks for one
    Level level = Level::durable;
    bool accept_lower = false;       // goes on when the server grants less than `level`
    bool accept_duplicates = false;  // goes on when the server has forgotten this producer
    bool sparse = false;             // ids rise with gaps, and are the caller's: send_as
    std::uint64_t first_id = 1;      // where the server knows nothing of this producer
    std::uint32_t window_messages = 0;  // what may be on its way; 0 is as the server likes, which may grant less
    std::uint64_t window_bytes = 0;
    std::size_t buffer_messages = 1'000'000;  // what may be unacknowledged, with headers; one message always may
    std::size_t buffer_bytes = 32 << 20;
    std::chrono::milliseconds silence{30'000};  // a server that owes an answer for so long counts as lost
};

namespace detail {

constexpr std::uint64_t id_max = std::numeric_limits<std::uint64_t>::max();

// What some received bytes said.
struct News {
    bool welcomed = false;
    std::string waits_for;
    std::optional<Refused> refused;
};

class Session {
public:
    explicit Session(ProducerSettings wants) : wants(std::move(wants)) { hello(); }

    const ProducerSettings wants;
    Outbox outbox;
    std::optional<Welcome> granted;
    std::optional<std::uint64_t> settled;  // all messages up to here are

    bool has_room(std::size_t messages, std::size_t bytes) const {
        return outbox.messages == 0 || (outbox.messages + messages <= wants.buffer_messages && outbox.bytes + bytes <= wants.buffer_bytes);
    }

    // The next id; none when 2^64-1 was used.
    std::optional<std::uint64_t> next_id() const { return next_id_; }

    void check(std::uint64_t id, std::size_t size) const {
        if (!granted) throw WrongId("before the first welcome no message can have an id");
        if (!next_id_) throw WrongId("the last id, 2^64-1, was used");
        if (id < *next_id_ || (id > *next_id_ && !wants.sparse))
            throw WrongId("the id " + std::to_string(id) + " does not follow: " + std::to_string(*next_id_) + " was expected");
        if (size > granted->payload_max) throw MessageTooLarge(size, granted->payload_max);
    }

    // Takes a message that was checked.
    void push(std::uint64_t id, std::string_view payload) {
        outbox.push(id, payload);
        next_id_ = id == id_max ? std::nullopt : std::optional(id + 1);
    }

    void connected(Clock::time_point now) {
        disconnected();
        phase_ = Phase::greeting;
        heard_ = now;
    }

    // What was handed out and not acknowledged is handed out again on the next connection.
    void disconnected() {
        if (phase_ == Phase::waiting) {
            ++unanswered_;
            last_unanswered_ = heard_;
        }
        phase_ = Phase::offline;
        outbox.rewind(0);
        handed_out_.reset();
    }

    bool awaits_welcome() const { return phase_ == Phase::greeting || phase_ == Phase::waiting; }

    // What is to be written first on a connection.
    std::string greeting() {
        phase_ = Phase::waiting;
        return hello();
    }

    // What is to be written next; empty if nothing may be for now.
    Piece output(Clock::time_point now) {
        if (phase_ != Phase::open) return {};
        auto messages = smaller(wants.window_messages, granted->window_messages);
        auto bytes = smaller(wants.window_bytes, granted->window_bytes);
        bool waited = outbox.sent_messages > 0;
        auto piece = outbox.next(messages, bytes);
        if (piece.size > 0) {
            handed_out_ = piece.last;
            if (!waited) heard_ = now;
        }
        return piece;
    }

    // Takes whole frames off the front of `data`; how many bytes they had goes to `done`, also when it throws.
    void received(std::string_view data, Clock::time_point now, News& news, std::size_t& done) {
        heard_ = now;
        while (auto decoded = decode(data.substr(done), body_max)) {
            done += decoded->size;
            take(decoded->frame, now, news);
        }
    }

    // When `expired` is to be called, if nothing is received before.
    std::optional<Clock::time_point> deadline() const {
        if (phase_ == Phase::holding) return hold_until_;
        if (awaits_welcome() || (phase_ == Phase::open && outbox.sent_messages > 0)) return heard_ + wants.silence;
        return std::nullopt;
    }

    // The caller listens again after a while in which it did not: that silence was its own.
    void listening(Clock::time_point now) { heard_ = std::max(heard_, now); }

    void expired(Clock::time_point now) {
        auto due = deadline();
        if (!due || now < *due) return;
        if (phase_ == Phase::holding) {
            phase_ = Phase::open;
            heard_ = now;
        } else if (awaits_welcome()) {
            throw Unanswered("no answer to the ingest hello: is another service at this address?");
        } else {
            throw Unanswered("the server sent nothing for " + std::to_string(wants.silence.count()) + " ms, though an answer is due");
        }
    }

private:
    enum class Phase {
        offline,
        greeting,  // the hello is to be handed out
        waiting,   // the server owes its welcome
        open,
        holding,  // the server refused messages for now; they are sent again then
    };

    static std::size_t smaller(std::uint64_t wanted, std::uint64_t granted) {
        auto least = wanted == 0 ? granted : std::min(wanted, granted);
        return static_cast<std::size_t>(std::min<std::uint64_t>(least, std::numeric_limits<std::size_t>::max() / 2));
    }

    std::string hello() {
        auto first = outbox.first_id();
        if (!first) first = granted ? next_id_.value_or(id_max) : wants.first_id;
        // At level received the server may have lost, in a crash, what it acknowledged.
        bool adopts = granted && wants.level == Level::received;
        return Produce{static_cast<std::uint8_t>(wants.level), wants.sparse, adopts, wants.window_messages, wants.window_bytes, *first,
                       wants.stream, wants.name, wants.token}.encode();
    }

    void take(const Frame& frame, Clock::time_point now, News& news) {
        bool greeted = phase_ == Phase::open || phase_ == Phase::holding;
        if (std::holds_alternative<Unknown>(frame)) return;
        if (auto* ack = std::get_if<Ack>(&frame); ack && greeted) {
            if (ack->keep_alive) news.waits_for = std::string(ack->why);
            else acknowledged(ack->id);
            return;
        }
        if (auto* refusal = std::get_if<Refusal>(&frame)) {
            if (refusal->closes) {
                phase_ = Phase::offline;
                refused_for_good(*refusal, now);
            }
            if (greeted) {
                refused(*refusal, now);
                news.refused = refusal->error();
                return;
            }
        }
        if (auto* welcome = std::get_if<Welcome>(&frame); welcome && phase_ == Phase::waiting) {
            welcomed(*welcome);
            news.welcomed = true;
            return;
        }
        throw ProtocolError("a frame is out of its place");
    }

    [[noreturn]] void refused_for_good(const Refusal& refusal, Clock::time_point now) {
        // A newer session of this producer may be one of this client's own, begun by a hello that was read late. Each such hello
        // excuses one refusal.
        if (refusal.reason == Reason::fenced && unanswered_ > 0 && now - last_unanswered_ <= std::chrono::minutes(15)) {
            --unanswered_;
            throw Overtaken();
        }
        throw refusal.error();
    }

    void welcomed(const Welcome& welcome) {
        if (welcome.level < wants.level && !wants.accept_lower) throw LevelNotGranted(wants.level, welcome.level);
        if (welcome.forgotten && !wants.accept_duplicates) throw Forgotten();
        auto mark = welcome.last_id;
        if (!granted) {
            next_id_ = !mark ? std::optional(wants.first_id) : *mark == id_max ? std::nullopt : std::optional(*mark + 1);
            settled = mark;
        } else if (!wants.name.empty()) {
            if (mark && next_id_ && *mark >= *next_id_) throw NameTaken(std::max<std::uint64_t>(*next_id_, 1) - 1, *mark);
            bool lost = settled && (!mark || *mark < *settled);
            if (lost && wants.level >= Level::durable && !welcome.forgotten) throw Lost(*settled, mark);
            if (mark) {
                outbox.acknowledged(*mark);
                settled = settled ? std::max(*settled, *mark) : *mark;
            }
        }
        granted = welcome;
        phase_ = Phase::open;
    }

    void acknowledged(std::uint64_t id) {
        if (settled && id <= *settled) return;
        if (!handed_out_ || id > *handed_out_) throw ProtocolError("it acknowledged " + std::to_string(id) + ", which was not sent");
        settled = id;
        outbox.acknowledged(id);
    }

    void refused(const Refusal& refusal, Clock::time_point now) {
        bool waits = handed_out_ && refusal.id <= *handed_out_ && !(settled && refusal.id <= *settled);
        if (!waits || refusal.reason == Reason::malformed)
            throw ProtocolError("it refused " + std::to_string(refusal.id) + ", which was not waiting");
        outbox.rewind(refusal.id);
        phase_ = Phase::holding;
        hold_until_ = now + std::chrono::milliseconds(refusal.retry_after_ms);
    }

    Phase phase_ = Phase::offline;
    std::optional<std::uint64_t> next_id_, handed_out_;
    Clock::time_point heard_, hold_until_, last_unanswered_;
    unsigned unanswered_ = 0;  // hellos without an answer while their connections lasted; the server may read them yet
};

}  // namespace detail
}  // namespace tidewire::ingest
