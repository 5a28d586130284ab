package ingest

const blockSize = 64 << 10

// block is a run of messages, as they are written. Bytes that were appended do not move or change.
type block struct {
	data  []byte
	count int
	last  uint64
}

// place is a position between two messages: in a block, behind so many of its bytes and messages.
type place struct {
	block, at, count int
}

// outbox is the resend buffer: what was pushed and is not acknowledged.
type outbox struct {
	blocks []*block
	// acked and sent are where the first message that is unacknowledged, or unsent, stands.
	acked, sent  place
	messages     int
	bytes        int
	sentMessages int
	sentBytes    int
	// retired blocks are acknowledged, and may still be being written; free ones are written on again.
	retired, free []*block
}

const freeMax = 64

// recycle is called when nothing that next answered is being written any more.
func (o *outbox) recycle() {
	for at, b := range o.retired {
		if cap(b.data) == blockSize && len(o.free) < freeMax {
			o.free = append(o.free, &block{data: b.data[:0]})
		}
		o.retired[at] = nil
	}
	o.retired = o.retired[:0]
}

// room makes sure that a message of so many bytes fits into the last block.
func (o *outbox) room(size int) *block {
	if n := len(o.blocks); n > 0 {
		last := o.blocks[n-1]
		if len(last.data)+size <= cap(last.data) {
			return last
		}
	}
	var b *block
	if last := len(o.free) - 1; last >= 0 && size <= blockSize {
		b, o.free[last] = o.free[last], nil
		o.free = o.free[:last]
	} else {
		b = &block{data: make([]byte, 0, max(blockSize, size))}
	}
	o.blocks = append(o.blocks, b)
	return b
}

func (o *outbox) push(id uint64, payload []byte) {
	size := messageHeader + len(payload)
	b := o.room(size)
	at := len(b.data)
	b.data = b.data[:at+size]
	to := b.data[at:]
	le.PutUint64(to, id)
	le.PutUint32(to[8:], uint32(len(payload)))
	copy(to[messageHeader:], payload)
	b.count++
	b.last = id
	o.messages++
	o.bytes += size
}

// settle moves a place that stands at the end of a block to the beginning of the next, if there is one.
func (o *outbox) settle(p *place) {
	for p.block < len(o.blocks)-1 && p.at == len(o.blocks[p.block].data) {
		*p = place{block: p.block + 1}
	}
}

func (o *outbox) head(p place) (id uint64, size int, ok bool) {
	if p.block >= len(o.blocks) || p.at == len(o.blocks[p.block].data) {
		return 0, 0, false
	}
	data := o.blocks[p.block].data[p.at:]
	return le.Uint64(data), messageHeader + int(le.Uint32(data[8:])), true
}

func (o *outbox) firstID() (uint64, bool) {
	o.settle(&o.acked)
	id, _, ok := o.head(o.acked)
	return id, ok
}

// next is what may be written within a window, of one block; one message when nothing is unacknowledged, however large. The
// last id of what it answers follows.
func (o *outbox) next(messages, bytes int) ([]byte, uint64) {
	o.settle(&o.sent)
	id, size, ok := o.head(o.sent)
	if !ok {
		return nil, 0
	}
	b, from := o.blocks[o.sent.block], o.sent.at
	restMessages, restBytes := b.count-o.sent.count, len(b.data)-from
	messages, bytes = messages-o.sentMessages, bytes-o.sentBytes
	if restMessages <= messages && restBytes <= bytes {
		o.sent.at, o.sent.count = len(b.data), b.count
		o.sentMessages += restMessages
		o.sentBytes += restBytes
		return b.data[from:], b.last
	}
	var last uint64
	for ok && ((messages > 0 && size <= bytes) || o.sentMessages == 0) {
		last = id
		o.sent.at += size
		o.sent.count++
		o.sentMessages++
		o.sentBytes += size
		messages--
		bytes -= size
		id, size, ok = o.head(o.sent)
	}
	return b.data[from:o.sent.at], last
}

// acknowledged drops the messages up to id; how many.
func (o *outbox) acknowledged(id uint64) int {
	dropped := 0
	for {
		o.settle(&o.acked)
		o.settle(&o.sent)
		first, size, ok := o.head(o.acked)
		if !ok || first > id {
			break
		}
		b, count := o.blocks[o.acked.block], 1
		isSent := o.sentMessages > 0
		if isSent && b.last <= id && (o.sent.block > o.acked.block || o.sent.at == len(b.data)) {
			// All that is left of a block.
			count, size = b.count-o.acked.count, len(b.data)-o.acked.at
		}
		o.acked.at += size
		o.acked.count += count
		if isSent {
			o.sentMessages -= count
			o.sentBytes -= size
		} else {
			o.sent = o.acked
		}
		o.messages -= count
		o.bytes -= size
		dropped += count
	}
	if done := o.acked.block; done > 0 {
		o.retired = append(o.retired, o.blocks[:done]...)
		clear(o.blocks[:done])
		o.blocks = o.blocks[done:]
		o.acked.block = 0
		o.sent.block -= done
	}
	return dropped
}

// rewind has the messages from id on written again.
func (o *outbox) rewind(id uint64) {
	o.settle(&o.acked)
	o.sent, o.sentMessages, o.sentBytes = o.acked, 0, 0
	for {
		o.settle(&o.sent)
		first, size, ok := o.head(o.sent)
		if !ok || first >= id {
			return
		}
		o.sent.at += size
		o.sent.count++
		o.sentMessages++
		o.sentBytes += size
	}
}
