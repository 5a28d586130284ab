// A producer: blocking calls, and a descriptor for programs that poll.
#pragma once

#include <exception>

#include "stream.hpp"

namespace tidewire::ingest {

// Sends messages and knows what became of them. All work is done in the calls: there is no thread. For one thread at a time.
//
//     tidewire::ingest::ProducerSettings settings;
//     settings.name = "web-7";
//     tidewire::ingest::Producer producer("127.0.0.1:7400", settings);
//     producer.send("hello");
//     producer.close();  // now it is durable
//
// A program that polls makes it with `begin`, which does not wait, and then, over and over, polls `descriptor` for `events` for at
// most `timeout` milliseconds, and calls `drive`. It hands in messages with `try_send`. Only looking up a host's name blocks.
class Producer {
public:
    using Duration = std::chrono::milliseconds;

    // Connects and waits for the welcome.
    explicit Producer(const std::string& address, ProducerSettings settings = {}, const Connecting& how = {})
        : Producer(address, std::move(settings), how, 0) {
        wait_while([&] { return !session_.granted; }, std::nullopt);
    }

    // Does not wait: `is_welcomed` says when messages are taken.
    static Producer begin(const std::string& address, ProducerSettings settings = {}, const Connecting& how = {}) {
        return Producer(address, std::move(settings), how, 0);
    }

    Producer(Producer&&) = default;

    // What the server granted at the last connection.
    const Welcome& welcome() const { return session_.granted.value(); }
    bool is_welcomed() const { return session_.granted.has_value(); }

    // The id of the next message. Nothing before the first welcome, and when there are no more.
    std::optional<std::uint64_t> next_id() const { return session_.next_id(); }

    // All messages up to this id are at the level granted. Nothing if there is none yet.
    std::optional<std::uint64_t> acknowledged() const { return session_.settled; }

    // How many messages are not acknowledged yet.
    std::size_t unacknowledged() const { return session_.outbox.messages; }

    // Takes a message and writes it; answers its id. Waits while the buffer is full, and while there was no welcome yet.
    std::uint64_t send(std::string_view payload) {
        usable();
        room(1, detail::message_header + payload.size());
        auto id = next();
        session_.check(id, payload.size());
        session_.push(id, payload);
        turn(++calls_ % 64 == 0);
        return id;
    }

    // With `sparse` ids: takes a message with any id above the last one.
    void send_as(std::uint64_t id, std::string_view payload) {
        usable();
        room(1, detail::message_header + payload.size());
        session_.check(id, payload.size());
        session_.push(id, payload);
        turn(++calls_ % 64 == 0);
    }

    // Takes messages, anything that is a std::string_view, which are written together; answers the id of the first: the others'
    // follow. All are taken, or none. Several times as fast as `send` for each. There must be one at least.
    template <class Payloads>
    std::uint64_t send_many(const Payloads& payloads) {
        usable();
        std::size_t count = 0, size = 0, largest = 0;
        for (std::string_view payload : payloads) {
            ++count;
            size += detail::message_header + payload.size();
            largest = std::max(largest, payload.size());
        }
        if (count == 0) throw std::invalid_argument("there is no message to send");
        room(count, size);
        auto first = next();
        session_.check(first, largest);
        if (first > detail::id_max - (count - 1)) throw WrongId("there are not so many ids left");
        auto id = first;
        for (std::string_view payload : payloads) session_.push(id++, payload);
        turn(true);
        return first;
    }

    // As `send`, without waiting: nothing while the buffer is full, and before the first welcome.
    std::optional<std::uint64_t> try_send(std::string_view payload) {
        usable();
        if (!session_.granted || !session_.has_room(1, detail::message_header + payload.size())) return std::nullopt;
        auto id = next();
        session_.check(id, payload.size());
        session_.push(id, payload);
        turn(false);
        return id;
    }

    // Waits until everything is acknowledged. TimedOut after that time.
    void flush(std::optional<Duration> timeout = std::nullopt) {
        usable();
        wait_while([&] { return session_.outbox.messages > 0; }, timeout);
    }

    // Waits until everything up to `id` is acknowledged.
    void wait(std::uint64_t id, std::optional<Duration> timeout = std::nullopt) {
        usable();
        wait_while([&] { return session_.outbox.messages > 0 && !(session_.settled && *session_.settled >= id); }, timeout);
    }

    // Flushes and closes. Destroying a producer closes at once: what is not acknowledged then may or may not be stored.
    void close(std::optional<Duration> timeout = std::nullopt) {
        if (is_closed_) return;
        flush(timeout);
        if (auto* stream = link_.stream()) stream->end_writing();
        is_closed_ = true;
        link_.close();
    }

    // For programs that poll. All three may change with each call of another function.

    // -1 while there is no connection: then `timeout` says when to call `drive`.
    int descriptor() const { return link_.stream() ? link_.stream()->descriptor() : -1; }

    short events() const {
        if (!link_.stream()) return 0;
        return static_cast<short>(link_.stream()->events() | (pending_.size > 0 || !greeting_.empty() ? POLLOUT : 0));
    }

    // Milliseconds after which `drive` is to be called in any case; -1 for never.
    int timeout() const { return detail::until(deadline(), Clock::now()); }

    // Does what can be done without waiting: connects, writes, hears. Throws what is final; every call does then.
    void drive() {
        usable();
        turn(true);
    }

private:
    Producer(const std::string& address, ProducerSettings settings, const Connecting& how, int)
        : session_(std::move(settings)), link_(address, how), buffer_(16 << 10) {}

    void usable() const {
        if (is_closed_) throw Closed();
        if (failure_) std::rethrow_exception(failure_);
    }

    std::uint64_t next() const {
        // `check` says what is wrong where there is none.
        return session_.next_id().value_or(detail::id_max);
    }

    void room(std::size_t messages, std::size_t bytes) {
        if (session_.granted && session_.has_room(messages, bytes)) return;
        wait_while([&] { return !session_.granted || !session_.has_room(messages, bytes); }, std::nullopt);
    }

    std::optional<Clock::time_point> deadline() const {
        if (!link_.is_up()) return link_.deadline();
        auto due = session_.deadline();
        return session_.awaits_welcome() ? detail::sooner(due, link_.welcome_due()) : due;
    }

    template <class Pending>
    void wait_while(Pending pending, std::optional<Duration> timeout) {
        auto now = Clock::now();
        auto end = timeout ? std::optional(now + *timeout) : std::nullopt;
        session_.listening(now);
        turn(true);
        while (pending()) {
            now = Clock::now();
            if (end && now >= *end) throw TimedOut(std::to_string(unacknowledged()) + " messages are not acknowledged in the time given");
            pollfd waits{descriptor(), events(), 0};
            ::poll(&waits, waits.fd < 0 ? 0 : 1, detail::until(detail::sooner(deadline(), end), now));
            turn(true);
        }
    }

    void turn(bool hears) {
        auto now = Clock::now();
        try {
            auto state = link_.drive(now);
            if (state == detail::Link::State::down) return;
            if (state == detail::Link::State::just_up) {
                filled_ = 0;
                pending_ = {};
                session_.connected(now);
                greeting_ = session_.greeting();
            }
            write(now);
            if (!hears) return;
            hear(now);
            session_.expired(now);
            if (session_.awaits_welcome())
                if (auto due = link_.welcome_due(); due && now >= *due) throw Unanswered("no answer to the ingest hello in the time that there is");
            write(now);
        } catch (const Error& failure) {
            session_.disconnected();
            pending_ = {};
            greeting_.clear();
            try {
                link_.lost(failure, now);
            } catch (...) {
                failure_ = std::current_exception();
                throw;
            }
        }
    }

    void write(Clock::time_point now) {
        auto& stream = *link_.stream();
        if (!stream.flush()) return;
        while (!greeting_.empty()) {
            auto sent = stream.write(greeting_.data(), greeting_.size());
            if (sent == 0) return;
            greeting_.erase(0, sent);
        }
        for (;;) {
            if (pending_.size == 0) pending_ = session_.output(now);
            if (pending_.size == 0) return;
            auto sent = stream.write(pending_.data, pending_.size);
            if (sent == 0) return;
            pending_.data += sent;
            pending_.size -= sent;
        }
    }

    void hear(Clock::time_point now) {
        // So often that a server which floods cannot hold the caller.
        for (int times = 0; times < 16; ++times) {
            long got = link_.stream()->read(buffer_.data() + filled_, buffer_.size() - filled_);
            if (got < 0) return;
            if (got == 0)
                throw Unreachable(session_.awaits_welcome() ? "the server closed the connection before it answered the ingest hello: it may speak "
                                                              "TLS where this client speaks none, or another protocol"
                                                            : "the server closed the connection");
            filled_ += static_cast<std::size_t>(got);
            detail::News news;
            std::size_t done = 0;
            session_.received({buffer_.data(), filled_}, now, news, done);
            std::memmove(buffer_.data(), buffer_.data() + done, filled_ - done);
            bool is_all = filled_ < buffer_.size();
            filled_ -= done;
            if (news.welcomed) link_.welcomed();
            if (news.refused) link_.attempts().say(Severity::warning, std::string("messages are sent again: ") + news.refused->what());
            if (!news.waits_for.empty())
                link_.attempts().say(Severity::info, "the server waits: " + detail::printable(news.waits_for));
            if (is_all) return;
        }
    }

    detail::Session session_;
    detail::Link link_;
    std::vector<char> buffer_;
    std::size_t filled_ = 0, calls_ = 0;
    std::string greeting_;
    detail::Piece pending_;
    std::exception_ptr failure_;
    bool is_closed_ = false;
};

}  // namespace tidewire::ingest
