// The resend buffer: what was pushed and is not acknowledged.
#pragma once

#include <deque>
#include <limits>
#include <memory>

#include "codec.hpp"

namespace tidewire::ingest::detail {

// A run of messages, as they are written. Bytes that were appended do not move or change.
struct Block {
    explicit Block(std::size_t capacity) : data(new char[capacity]), capacity(capacity) {}
    std::unique_ptr<char[]> data;
    std::size_t capacity, size = 0, count = 0;
    std::uint64_t last = 0;
};

// What is to be written; keeps its block.
struct Piece {
    std::shared_ptr<Block> block;
    const char* data = nullptr;
    std::size_t size = 0;
    std::uint64_t last = 0;
};

class Outbox {
public:
    std::size_t messages = 0, bytes = 0, sent_messages = 0, sent_bytes = 0;

    void push(std::uint64_t id, std::string_view payload) {
        auto size = message_header + payload.size();
        if (blocks_.empty() || blocks_.back()->capacity - blocks_.back()->size < size)
            blocks_.push_back(std::make_shared<Block>(std::max(block_size, size)));
        auto& block = *blocks_.back();
        char* to = block.data.get() + block.size;
        put(to, id);
        put(to + 8, static_cast<std::uint32_t>(payload.size()));
        if (!payload.empty()) std::memcpy(to + message_header, payload.data(), payload.size());
        block.size += size;
        ++block.count;
        block.last = id;
        ++messages;
        bytes += size;
    }

    std::optional<std::uint64_t> first_id() {
        settle(acked_);
        auto head = at(acked_);
        return head ? std::optional(head->id) : std::nullopt;
    }

    // What may be written within a window, of one block; one message when nothing is unacknowledged, however large.
    Piece next(std::size_t window_messages, std::size_t window_bytes) {
        settle(sent_);
        auto head = at(sent_);
        if (!head) return {};
        auto& block = blocks_[sent_.block];
        auto from = sent_.at;
        auto free_messages = window_messages > sent_messages ? window_messages - sent_messages : 0;
        auto free_bytes = window_bytes > sent_bytes ? window_bytes - sent_bytes : 0;
        auto rest_messages = block->count - sent_.count, rest_bytes = block->size - from;
        std::uint64_t last = 0;
        if (rest_messages <= free_messages && rest_bytes <= free_bytes) {
            sent_.at = block->size;
            sent_.count = block->count;
            sent_messages += rest_messages;
            sent_bytes += rest_bytes;
            last = block->last;
        } else {
            while (head && ((free_messages > 0 && head->size <= free_bytes) || sent_messages == 0)) {
                last = head->id;
                sent_.at += head->size;
                ++sent_.count;
                ++sent_messages;
                sent_bytes += head->size;
                free_messages -= free_messages > 0 ? 1 : 0;
                free_bytes -= std::min(free_bytes, head->size);
                head = at(sent_);
            }
        }
        return {block, block->data.get() + from, sent_.at - from, last};
    }

    // Drops the messages up to `id`; how many.
    std::size_t acknowledged(std::uint64_t id) {
        std::size_t dropped = 0;
        for (;;) {
            settle(acked_);
            settle(sent_);
            auto head = at(acked_);
            if (!head || head->id > id) break;
            auto& block = *blocks_[acked_.block];
            std::size_t count = 1, size = head->size;
            bool is_sent = sent_messages > 0;
            if (is_sent && block.last <= id && (sent_.block > acked_.block || sent_.at == block.size)) {
                // All that is left of a block.
                count = block.count - acked_.count;
                size = block.size - acked_.at;
            }
            acked_.at += size;
            acked_.count += count;
            if (is_sent) {
                sent_messages -= count;
                sent_bytes -= size;
            } else {
                sent_ = acked_;
            }
            messages -= count;
            bytes -= size;
            dropped += count;
        }
        for (; acked_.block > 0; --acked_.block, --sent_.block) blocks_.pop_front();
        return dropped;
    }

    // Has the messages from `id` on written again.
    void rewind(std::uint64_t id) {
        settle(acked_);
        sent_ = acked_;
        sent_messages = sent_bytes = 0;
        for (;;) {
            settle(sent_);
            auto head = at(sent_);
            if (!head || head->id >= id) return;
            sent_.at += head->size;
            ++sent_.count;
            ++sent_messages;
            sent_bytes += head->size;
        }
    }

private:
    static constexpr std::size_t block_size = 64 << 10;

    // A position between two messages: in a block, behind so many of its bytes and messages.
    struct Place {
        std::size_t block = 0, at = 0, count = 0;
    };

    struct Head {
        std::uint64_t id;
        std::size_t size;
    };

    // Moves a place that stands at the end of a block to the beginning of the next, if there is one.
    void settle(Place& place) {
        while (place.block + 1 < blocks_.size() && place.at == blocks_[place.block]->size) place = {place.block + 1, 0, 0};
    }

    std::optional<Head> at(const Place& place) const {
        if (place.block >= blocks_.size() || place.at == blocks_[place.block]->size) return std::nullopt;
        const char* data = blocks_[place.block]->data.get() + place.at;
        return Head{get<std::uint64_t>(data), message_header + get<std::uint32_t>(data + 8)};
    }

    std::deque<std::shared_ptr<Block>> blocks_;
    Place acked_, sent_;
};

}  // namespace tidewire::ingest::detail
