// A reader: blocking calls, and a descriptor for programs that poll.
#pragma once

#include <exception>

#include "stream.hpp"

namespace tidewire::ingest {

// What a reader wants.
struct ReaderSettings {
    std::string stream;  // empty for `default`
    Begin begin;         // by default at the cursor if there is one, else at the oldest record
    bool follow = false;  // waits at the tail for more
    bool wait = false;    // for a stream that does not exist yet; only with follow
    std::string cursor;   // a name under which the server remembers how far this reader is: Reader::commit
    std::string token;    // a secret, where the server asks for one
    std::uint64_t credit = 4 << 20;  // bytes that may be on their way; one batch may exceed it
};

// One message as it is stored. The texts are there until the next call of the reader.
struct Record {
    std::uint64_t position;  // its place in the stream
    std::uint64_t id;        // what its producer gave it
    std::string_view producer;   // empty if it had no name
    std::uint64_t timestamp_us;  // when the server received it: microseconds since the Unix epoch
    std::string_view payload;
};

// Reads a stream, record by record, over as many connections as it takes. For one thread at a time.
//
//     tidewire::ingest::Reader reader("127.0.0.1:7400");
//     while (auto record = reader.read()) use(record->payload);
//
// A program that polls makes it with `begin`, polls `descriptor` for `events` for at most `timeout` milliseconds, and calls
// `try_read` until there is nothing. Groups of readers are not part of the native protocol yet.
class Reader {
public:
    using Duration = std::chrono::milliseconds;

    // Connects and waits for the welcome.
    explicit Reader(const std::string& address, ReaderSettings settings = {}, const Connecting& how = {}) : Reader(address, std::move(settings), how, 0) {
        wait_while([&] { return !welcome_; }, std::nullopt, "the server did not answer");
    }

    // Does not wait.
    static Reader begin(const std::string& address, ReaderSettings settings = {}, const Connecting& how = {}) {
        return Reader(address, std::move(settings), how, 0);
    }

    Reader(Reader&&) = default;

    // What the server said that it has, at the last connection.
    const ReaderWelcome& welcome() const { return welcome_.value(); }
    bool is_welcomed() const { return welcome_.has_value(); }

    // Waits for the next record; nothing at the end. TimedOut after that time: reading may go on.
    std::optional<Record> read(std::optional<Duration> timeout = std::nullopt) {
        auto record = try_read();
        if (record || is_over()) return record;
        wait_while([&] { return !(record = try_read()) && !is_over(); }, timeout, "no record came in the time given");
        return record;
    }

    // The next record, if it is here; else does what can be done without waiting. `is_over` says whether there can be more.
    std::optional<Record> try_read() {
        if (batch_.count == 0) turn();
        if (batch_.count == 0) return std::nullopt;
        try {
            return record();
        } catch (const Error&) {
            failure_ = std::current_exception();
            link_.close();
            throw;
        }
    }

    // Whether the tail was reached and every record was read.
    bool is_over() const { return batch_.count == 0 && has_enough(); }

    // All records before `position` are dealt with: the cursor moves there, with the log's next commit. Nothing is answered;
    // `close` sees to it that the server has it.
    void commit(std::uint64_t position) {
        if (settings_.cursor.empty()) throw std::invalid_argument("this reader was given no cursor to move");
        usable();
        committed_ = position;
        if (is_open_) {
            detail::append_reader_frame(output_, 2, position);
            push_out();
        }
    }

    // Ends reading in order, so that a cursor that was moved has reached the server; waits for the server's end at most as long as
    // an attempt to connect may take.
    void close() {
        if (is_closed_) return;
        is_closed_ = true;
        batch_ = {};
        if (!failure_ && is_open_ && !settings_.cursor.empty()) drain();
        link_.close();
    }

    // For programs that poll. All three may change with each call of another function.

    // -1 while there is no connection: then `timeout` says when to call `try_read`.
    int descriptor() const { return link_.stream() ? link_.stream()->descriptor() : -1; }

    short events() const {
        if (!link_.stream()) return 0;
        return static_cast<short>(link_.stream()->events() | (output_.empty() ? 0 : POLLOUT));
    }

    int timeout() const { return detail::until(deadline(), Clock::now()); }

private:
    Reader(const std::string& address, ReaderSettings settings, const Connecting& how, int) : settings_(std::move(settings)), link_(address, how) {
        if (settings_.credit == 0) throw std::invalid_argument("the credit must be above zero");
        if (settings_.wait && !settings_.follow) throw std::invalid_argument("only a reader that follows can wait for a stream");
        if (settings_.begin.kind == 0) settings_.begin = settings_.cursor.empty() ? Begin::first() : Begin::cursor();
        if (settings_.begin.kind == 4 && settings_.cursor.empty()) throw std::invalid_argument("the cursor has no name");
        hello();
    }

    std::string hello() const {
        // A reader with a cursor asks to follow, and ends by itself where the tail was at its first welcome: a server that has sent the
        // end does not hear where the cursor is moved to.
        return detail::Subscribe{next_ ? Begin::position(*next_) : settings_.begin, settings_.follow || !settings_.cursor.empty(), settings_.wait,
                                 settings_.credit, settings_.stream, settings_.cursor, settings_.token}.encode();
    }

    void usable() const {
        if (is_closed_) throw Closed();
        if (failure_) std::rethrow_exception(failure_);
    }

    bool has_enough() const { return has_ended_ || (until_ && next_ && *next_ >= *until_); }

    std::optional<Clock::time_point> deadline() const {
        if (!link_.is_up()) return link_.deadline();
        return is_open_ ? std::nullopt : std::optional(welcome_due_);
    }

    template <class Pending>
    void wait_while(Pending pending, std::optional<Duration> timeout, const char* late) {
        auto end = timeout ? std::optional(Clock::now() + *timeout) : std::nullopt;
        turn();
        while (pending()) {
            auto now = Clock::now();
            if (end && now >= *end) throw TimedOut(late);
            // A frame may be here whole, behind the welcome.
            if (!has_whole_frame()) {
                pollfd waits{descriptor(), events(), 0};
                ::poll(&waits, waits.fd < 0 ? 0 : 1, detail::until(detail::sooner(deadline(), end), now));
            }
            turn();
        }
    }

    bool has_whole_frame() const {
        auto rest = std::string_view(input_).substr(taken_);
        return is_open_ && rest.size() >= detail::needed(rest);
    }

    // Goes on until there is a batch, the end, or nothing more without waiting.
    void turn() {
        usable();
        if (batch_.count > 0 || has_enough()) return;
        auto now = Clock::now();
        try {
            auto state = link_.drive(now);
            if (state == detail::Link::State::down) return;
            if (state == detail::Link::State::just_up) {
                input_.clear();
                taken_ = 0;
                is_open_ = false;
                spent_ = 0;
                output_ = hello();
                welcome_due_ = now + link_.attempts().timeout();
            }
            write();
            do {
                while (take_frame())
                    if (batch_.count > 0 || has_enough()) {
                        write();
                        return;
                    }
                write();
            } while (hear());
            if (!is_open_ && now >= welcome_due_) throw Unanswered("no answer to the ingest hello: is another service at this address?");
        } catch (const Error& failure) {
            lose(failure, now);
        }
    }

    // In a handler of the failure.
    void lose(const Error& failure, Clock::time_point now) {
        is_open_ = false;
        output_.clear();
        try {
            link_.lost(failure, now);
        } catch (...) {
            failure_ = std::current_exception();
            throw;
        }
    }

    void push_out() {
        try {
            write();
        } catch (const Error& failure) {
            lose(failure, Clock::now());
        }
    }

    void write() {
        auto& stream = *link_.stream();
        if (!stream.flush()) return;
        while (!output_.empty()) {
            auto sent = stream.write(output_.data(), output_.size());
            if (sent == 0) return;
            output_.erase(0, sent);
        }
    }

    // Receives; whether there was something.
    bool hear() {
        input_.erase(0, taken_);
        taken_ = 0;
        auto have = input_.size();
        auto need = std::min<std::size_t>(detail::needed(input_), largest() + detail::frame_header);
        input_.resize(std::max<std::size_t>(have + (256 << 10), need));
        long got = -1;
        try {
            got = link_.stream()->read(&input_[have], input_.size() - have);
        } catch (...) {
            input_.resize(have);
            throw;
        }
        input_.resize(have + static_cast<std::size_t>(std::max(got, 0L)));
        if (got == 0)
            throw Unreachable(is_open_ ? "the server closed the connection"
                                       : "the server closed the connection before it answered the ingest hello: it may speak TLS where this "
                                         "client speaks none, or another protocol");
        return got > 0;
    }

    std::size_t largest() const { return is_open_ ? std::max<std::size_t>(detail::body_max, welcome_->body_max) : detail::body_max; }

    // Takes in one frame; whether there was a whole one.
    bool take_frame() {
        auto decoded = detail::decode(std::string_view(input_).substr(taken_), largest());
        if (!decoded) return false;
        taken_ += decoded->size;
        auto& frame = decoded->frame;
        if (auto* refusal = std::get_if<detail::Refusal>(&frame)) throw refusal->error();
        if (auto* welcome = std::get_if<ReaderWelcome>(&frame); welcome && !is_open_) {
            welcomed(*welcome);
        } else if (auto* batch = std::get_if<detail::Batch>(&frame); batch && is_open_) {
            took(*batch, decoded->size);
        } else if (auto* end = std::get_if<detail::End>(&frame); end && is_open_) {
            next_ = std::max(next_.value_or(0), end->next);
            has_ended_ = true;
        } else if (!std::holds_alternative<detail::Unknown>(frame)) {
            throw ProtocolError("a frame is out of its place");
        }
        return true;
    }

    void welcomed(const ReaderWelcome& welcome) {
        if (next_ && welcome.start != *next_) throw Gap(*next_, welcome.start);
        if (!next_ && !settings_.follow && !settings_.cursor.empty()) until_ = welcome.next;
        next_ = welcome.start;
        welcome_ = welcome;
        is_open_ = true;
        link_.welcomed();
        // The connection before may have broken before the server heard it.
        if (committed_) detail::append_reader_frame(output_, 2, *committed_);
    }

    void took(const detail::Batch& batch, std::size_t size) {
        // A later position is a gap: what was there was lost in damage, which the log has marked.
        if (batch.first < *next_ || batch.count == 0 || batch.first > detail::id_max - batch.count)
            throw ProtocolError(std::to_string(batch.count) + " records from position " + std::to_string(batch.first) + " on, where "
                                + std::to_string(*next_) + " is next");
        next_ = batch.first + batch.count;
        batch_ = batch;
        spent_ += size;
        if (spent_ >= settings_.credit / 4) {
            detail::append_reader_frame(output_, 1, spent_);
            spent_ = 0;
        }
    }

    Record record() {
        auto& rest = batch_.messages;
        if (rest.size() < detail::message_header) throw ProtocolError("a batch has fewer records than it says");
        auto id = detail::get<std::uint64_t>(rest.data());
        std::size_t size = detail::get<std::uint32_t>(rest.data() + 8);
        if (rest.size() - detail::message_header < size) throw ProtocolError("a batch with a record that is cut");
        Record record{*next_ - batch_.count, id, batch_.producer, batch_.timestamp_us, rest.substr(detail::message_header, size)};
        rest.remove_prefix(detail::message_header + size);
        --batch_.count;
        if (batch_.count == 0 && !rest.empty()) throw ProtocolError("a batch has more bytes than records");
        return record;
    }

    void drain() {
        auto end = Clock::now() + link_.attempts().timeout();
        bool has_ended = false;
        try {
            std::vector<char> rest(256 << 10);
            for (;;) {
                write();
                if (output_.empty() && !has_ended && link_.stream()->flush()) {
                    link_.stream()->end_writing();
                    has_ended = true;
                }
                long got = link_.stream()->read(rest.data(), rest.size());
                auto now = Clock::now();
                if (got == 0 || now >= end) return;
                if (got > 0) continue;
                pollfd waits{descriptor(), events(), 0};
                ::poll(&waits, 1, detail::until(end, now));
            }
        } catch (const Error&) {
            // The connection is gone.
        }
    }

    ReaderSettings settings_;
    detail::Link link_;
    std::string input_, output_;
    std::size_t taken_ = 0;
    std::optional<ReaderWelcome> welcome_;
    std::optional<std::uint64_t> next_, until_, committed_;
    Clock::time_point welcome_due_;
    std::uint64_t spent_ = 0;
    detail::Batch batch_{};
    bool is_open_ = false, has_ended_ = false, is_closed_ = false;
    std::exception_ptr failure_;
};

}  // namespace tidewire::ingest
