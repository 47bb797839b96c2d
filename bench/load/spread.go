package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Many partitions in one stream. A Produce contains a batch for each of them; a Fetch uses a session, as clients do:
// the first request names all partitions, and each later one only those whose offset has changed.

const (
	fetchAnswerLimit = 256 << 20
	producedPerPart  = 4 + 2 + 3*8 + 4 // of a Produce response; errors also have a message
	anyPrime         = 7919            // so that consecutive partitions are far apart
)

// spreadRequest is a Produce of the same batch to every partition of a topic.
func spreadRequest(topic string, partitions int, acks int16, batch []byte) []byte {
	var w writer
	header(&w, produceKey, produceVersion, true)
	w.uvarint(0) // no transactional id
	w.int16(acks)
	w.int32(timeoutMillis)
	w.uvarint(1 + 1)
	w.compactString(topic)
	w.uvarint(partitions + 1)
	for p := 0; p < partitions; p++ {
		w.int32(int32(p))
		w.uvarint(len(batch) + 1)
		w.raw(batch)
		w.noTags()
	}
	w.noTags()
	w.noTags()
	return finish(&w)
}

// spreadAnswer reads a Produce response, after its correlation id, and requires every partition in it without an error.
func spreadAnswer(answer []byte, partitions int) error {
	r := reader{bytes: answer}
	r.tags()
	seen := 0
	for topics := r.count(); topics > 0 && r.err == nil; topics-- {
		r.compactString()
		for n := r.count(); n > 0 && r.err == nil; n-- {
			r.int32()
			if code := r.int16(); code != 0 {
				return kafkaError{"Produce", code}
			}
			r.take(3 * 8) // base offset, append time, log start
			if errors := r.count(); errors > 0 {
				return fmt.Errorf("a Produce has %d bad records", errors)
			}
			r.compactString()
			r.tags()
			seen++
		}
		r.tags()
	}
	if r.err == nil && seen != partitions {
		return fmt.Errorf("a Produce to %d partitions was answered for %d", partitions, seen)
	}
	return r.err
}

// touch writes the first batch of every partition. Kafka then stores the leader epoch in a file and syncs it, for each
// partition: that takes seconds for a thousand partitions, happens once, and is not part of any measure.
func touch(options produceOptions, c *control) error {
	prepared := newBatch(options.valueSize, options.batchSize)
	frame := spreadRequest(options.topic, options.partitions, int16(options.acks), prepared.bytes)
	answer, err := c.exchange(frame, 0)
	if err != nil {
		return err
	}
	return spreadAnswer(answer[8:], options.partitions)
}

// session reads all partitions of a topic over one connection.
type session struct {
	*control
	topicID       []byte
	offsets       []int64
	changed       []int32 // which partitions the next request names
	id, epoch     int32
	size          int
	partitionSize int
}

func newSession(c *control, topicID []byte, offsets []int64, size, partitionSize int) *session {
	s := &session{control: c, topicID: topicID, offsets: offsets, size: size, partitionSize: partitionSize}
	for p := range offsets {
		s.changed = append(s.changed, int32(p))
	}
	return s
}

func (s *session) request() []byte {
	var w writer
	header(&w, fetchKey, fetchVersion, true)
	w.int32(tailMaxWait)
	w.int32(1)
	w.int32(int32(s.size))
	w.int8(0)
	w.int32(s.id)
	w.int32(s.epoch)
	if len(s.changed) == 0 {
		w.uvarint(0 + 1)
	} else {
		w.uvarint(1 + 1)
		w.raw(s.topicID)
		w.uvarint(len(s.changed) + 1)
		for _, p := range s.changed {
			w.int32(p)
			w.int32(noLeaderEpoch)
			w.int64(s.offsets[p])
			w.int32(-1)
			w.int64(-1)
			w.int32(int32(s.partitionSize))
			w.noTags()
		}
		w.noTags()
	}
	w.uvarint(0 + 1)
	w.compactString("")
	w.noTags()
	return finish(&w)
}

// fetch sends one request and calls `got` with each partition that has records.
func (s *session) fetch(correlation int32, got func(partition int32, size int) error) error {
	answer, err := s.exchange(s.request(), correlation)
	if err != nil {
		return err
	}
	s.changed = s.changed[:0]
	return s.read(answer[8:], got)
}

func (s *session) read(answer []byte, got func(partition int32, size int) error) error {
	r := reader{bytes: answer}
	r.tags()
	r.int32() // throttle time
	if code := r.int16(); code != 0 {
		return kafkaError{"Fetch", code}
	}
	if s.id = r.int32(); s.id == 0 {
		return fmt.Errorf("the broker gives no fetch session for %d partitions", len(s.offsets))
	}
	s.epoch++
	for topics := r.count(); topics > 0 && r.err == nil; topics-- {
		r.take(16)
		for n := r.count(); n > 0 && r.err == nil; n-- {
			partition := r.int32()
			if code := r.int16(); code != 0 {
				return kafkaError{"Fetch", code}
			}
			r.take(3 * 8)
			r.count() // aborted transactions: none, because the load writes no transactions
			r.int32() // preferred read replica
			size := r.count()
			r.take(size)
			r.tags()
			if r.err == nil && size > 0 {
				if err := got(partition, size); err != nil {
					return err
				}
				s.changed = append(s.changed, partition)
			}
		}
		r.tags()
	}
	return r.err
}

// stream repeatedly reads a log that fill spread over all partitions.
func stream(options produceOptions, size, partitionSize int, w *window) (result outcome, err error) {
	c, err := dial(options.address)
	if err != nil {
		return result, err
	}
	defer c.close()
	if err := c.needs("Fetch", fetchKey, fetchVersion); err != nil {
		return result, err
	}
	id, err := c.topicID(options.topic, options.partitions)
	if err != nil {
		return result, err
	}
	ends, err := c.ends(options.topic, options.partitions)
	if err != nil {
		return result, err
	}
	stored := newBatch(options.valueSize, options.batchSize)
	s := newSession(c, id, make([]int64, options.partitions), size, partitionSize)
	var total totals
	for correlation := int32(1); ; correlation++ {
		before := total.bytes
		err := s.fetch(correlation, func(partition int32, size int) error {
			whole := size / len(stored.bytes)
			if whole == 0 {
				return fmt.Errorf("partition %d has %d bytes at %d, less than a batch", partition, size, s.offsets[partition])
			}
			total.records += int64(whole * stored.records)
			total.bytes += int64(whole * len(stored.bytes))
			s.offsets[partition] += int64(whole * stored.records)
			if s.offsets[partition] >= ends[partition] {
				s.offsets[partition] = 0
			}
			return nil
		})
		if err != nil {
			return result, err
		}
		if total.bytes == before {
			return result, fmt.Errorf("%s is empty; fill it first", options.topic)
		}
		total.requests++
		if over, err := w.closes(time.Now(), total); err != nil {
			return result, err
		} else if over {
			return w.outcome(total)
		}
	}
}

// tail repeatedly writes one record to some partition and reads it in a session over all of them: each such round trip
// counts as a request. It measures the cost of a session whose partitions are nearly all idle.
func tail(options produceOptions, w *window) (result outcome, err error) {
	c, err := dial(options.address)
	if err != nil {
		return result, err
	}
	defer c.close()
	id, err := c.topicID(options.topic, options.partitions)
	if err != nil {
		return result, err
	}
	ends, err := c.ends(options.topic, options.partitions)
	if err != nil {
		return result, err
	}
	written, err := dial(options.address)
	if err != nil {
		return result, err
	}
	defer written.close()
	prepared := newBatch(options.valueSize, 1)
	s := newSession(c, id, ends, tailFetchSize, tailFetchSize)
	var total totals
	for n := 0; ; n++ {
		partition := int32(n * anyPrime % options.partitions)
		frame, _ := produceRequest(options.topic, partition, int16(options.acks), prepared.bytes)
		if err := written.written(frame, int32(n), produceErrorAt(options.topic)); err != nil {
			return result, err
		}
		arrived := false
		for !arrived {
			err := s.fetch(int32(n), func(from int32, _ int) error {
				if from != partition {
					return fmt.Errorf("a record came from partition %d, and was written to %d", from, partition)
				}
				s.offsets[from]++
				arrived = true
				return nil
			})
			if err != nil {
				return result, err
			}
		}
		total.requests++
		total.records++
		total.bytes += int64(len(prepared.bytes))
		if over, err := w.closes(time.Now(), total); err != nil {
			return result, err
		} else if over {
			return w.outcome(total)
		}
	}
}

// exchange sends one prepared request and returns the complete frame of its response.
func (c *control) exchange(frame []byte, correlation int32) ([]byte, error) {
	setCorrelation(frame, correlation)
	c.conn.SetDeadline(time.Now().Add(controlTimeout))
	if _, err := c.conn.Write(frame); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(c.conn, length[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(length[:]))
	if size > fetchAnswerLimit || size < 4 {
		return nil, fmt.Errorf("an answer of %d bytes", size)
	}
	if 4+size > cap(c.answer) {
		c.answer = make([]byte, 4+size)
	}
	c.answer = c.answer[:4+size]
	copy(c.answer, length[:])
	if _, err := io.ReadFull(c.conn, c.answer[4:]); err != nil {
		return nil, err
	}
	if id := int32(binary.BigEndian.Uint32(c.answer[4:])); id != correlation {
		return nil, fmt.Errorf("answer %d came where %d was due", id, correlation)
	}
	return c.answer, nil
}

// written sends one Produce to one partition and waits for its acknowledgement.
func (c *control) written(frame []byte, correlation int32, errorAt int) error {
	answer, err := c.exchange(frame, correlation)
	switch {
	case err != nil:
		return err
	case len(answer) < errorAt+2:
		return fmt.Errorf("an answer of %d bytes to Produce is too short", len(answer))
	}
	if code := int16(binary.BigEndian.Uint16(answer[errorAt:])); code != 0 {
		return kafkaError{"Produce", code}
	}
	return nil
}
