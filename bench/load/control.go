package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// The requests around a measure, one at a time on a separate connection: they create and delete topics and read log
// ends.

const (
	controlTimeout  = 120 * time.Second // creating ten thousand partitions takes a while
	answerSizeLimit = 64 << 20
	pollPeriod      = 10 * time.Millisecond
)

type kafkaError struct {
	request string
	code    int16
}

func (e kafkaError) Error() string { return fmt.Sprintf("%s: error %d", e.request, e.code) }

// isPassing reports an error that is temporary for a new topic or coordinator: unknown topic or partition, no leader
// available, not the leader, coordinator loading or not available; or a transaction whose predecessor has not ended.
func isPassing(err error) bool {
	failed, ok := err.(kafkaError)
	switch {
	case !ok:
		return false
	case failed.code == 3, failed.code == 5, failed.code == 6, failed.code == 14, failed.code == 15:
		return true
	case failed.code == concurrentTransactions:
		return true
	}
	return false
}

type control struct {
	conn   net.Conn
	served map[int16][2]int16
	answer []byte // the last response to a prepared request
}

// dial connects and reads the broker's API versions.
func dial(address string) (*control, error) {
	conn, err := dialBroker(address)
	if err != nil {
		return nil, err
	}
	c := &control{conn: conn, served: map[int16][2]int16{apiVersionsKey: {0, 0}}}
	r, err := c.ask(apiVersionsKey, apiVersionsVersion, false, func(*writer) {})
	if err != nil {
		conn.Close()
		return nil, err
	}
	if code := r.int16(); code != 0 {
		return nil, kafkaError{"ApiVersions", code}
	}
	for n := r.int32(); n > 0 && r.err == nil; n-- {
		key := r.int16()
		c.served[key] = [2]int16{r.int16(), r.int16()}
	}
	return c, r.err
}

func (c *control) close() { c.conn.Close() }

// needs fails with one sentence if the broker does not support an API at the version that a measure sends.
func (c *control) needs(name string, key, version int16) error {
	versions, ok := c.served[key]
	if !ok || version < versions[0] || version > versions[1] {
		return fmt.Errorf("not served: %s v%d", name, version)
	}
	return nil
}

// ask sends one request and returns its response, without the header. Flexible responses have a tagged header.
func (c *control) ask(key, version int16, flexible bool, body func(*writer)) (*reader, error) {
	if err := c.needs(fmt.Sprintf("API %d", key), key, version); err != nil {
		return nil, err
	}
	var w writer
	header(&w, key, version, flexible)
	body(&w)
	c.conn.SetDeadline(time.Now().Add(controlTimeout))
	if _, err := c.conn.Write(finish(&w)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return nil, fmt.Errorf("no answer to API %d v%d: %w", key, version, err)
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > answerSizeLimit {
		return nil, fmt.Errorf("an answer of %d bytes to API %d", length, key)
	}
	answer := make([]byte, length)
	if _, err := io.ReadFull(c.conn, answer); err != nil {
		return nil, err
	}
	r := &reader{bytes: answer}
	r.int32()
	if flexible {
		r.tags()
	}
	return r, r.err
}

// createTopic takes settings as `segment.bytes=1024,retention.ms=-1`, or none.
func (c *control) createTopic(name string, partitions int, settings string) error {
	r, err := c.ask(createTopicsKey, createTopicsVersion, false, func(w *writer) {
		w.int32(1)
		w.string(name)
		w.int32(int32(partitions))
		w.int16(1) // replication factor
		w.int32(0) // no assignments
		pairs := strings.FieldsFunc(settings, func(r rune) bool { return r == ',' })
		w.int32(int32(len(pairs)))
		for _, pair := range pairs {
			key, value, _ := strings.Cut(pair, "=")
			w.string(key)
			w.string(value)
		}
		w.int32(timeoutMillis)
		w.int8(0)
	})
	if err != nil {
		return err
	}
	r.int32() // throttle time
	r.int32()
	r.string()
	if code := r.int16(); code != 0 {
		return kafkaError{"CreateTopics of " + name, code}
	}
	return r.err
}

func (c *control) deleteTopic(name string) error {
	r, err := c.ask(deleteTopicsKey, deleteTopicsVersion, false, func(w *writer) {
		w.int32(1)
		w.string(name)
		w.int32(timeoutMillis)
	})
	if err != nil {
		return err
	}
	r.int32()
	r.int32()
	r.string()
	if code := r.int16(); code != 0 {
		return kafkaError{"DeleteTopics of " + name, code}
	}
	return r.err
}

// topicID waits until every partition of a topic has a leader and returns the topic's id. A broker may appear in the
// metadata as the leader before it serves the partition, so each partition's log end is requested too.
func (c *control) topicID(name string, partitions int) ([]byte, error) {
	deadline := time.Now().Add(controlTimeout)
	for time.Now().Before(deadline) {
		id, leaders, err := c.metadata(name)
		if err != nil {
			return nil, err
		}
		if leaders == partitions {
			if _, err = c.end(name, partitions); err == nil {
				return id, nil
			}
			if !isPassing(err) {
				return nil, err
			}
		}
		time.Sleep(pollPeriod)
	}
	return nil, fmt.Errorf("%s had no leaders for %v", name, controlTimeout)
}

func (c *control) metadata(topic string) (id []byte, leaders int, err error) {
	r, err := c.ask(metadataKey, metadataVersion, true, func(w *writer) {
		w.uvarint(1 + 1)
		w.raw(make([]byte, 16))
		w.compactString(topic)
		w.noTags()
		w.int8(0) // do not create it
		w.int8(0)
		w.noTags()
	})
	if err != nil {
		return nil, 0, err
	}
	r.int32()
	for n := r.count(); n > 0 && r.err == nil; n-- { // brokers
		r.int32()
		r.compactString()
		r.int32()
		r.compactString()
		r.tags()
	}
	r.compactString() // cluster id
	r.int32()         // controller
	r.count()
	r.int16()
	r.compactString()
	id = r.take(16)
	r.take(1)
	for n := r.count(); n > 0 && r.err == nil; n-- {
		code := r.int16()
		r.int32()
		leader := r.int32()
		r.int32()
		for range [3]int{} { // replicas, in sync, offline
			r.take(4 * r.count())
		}
		r.tags()
		if code == 0 && leader >= 0 {
			leaders++
		}
	}
	return id, leaders, r.err
}

// end is the sum of the partitions' log ends, which is the number of records of a fresh topic.
func (c *control) end(topic string, partitions int) (sum int64, err error) {
	ends, err := c.ends(topic, partitions)
	for _, end := range ends {
		sum += end
	}
	return sum, err
}

func (c *control) ends(topic string, partitions int) ([]int64, error) {
	r, err := c.ask(listOffsetsKey, listOffsetsVersion, false, func(w *writer) {
		w.int32(-1) // not a replica
		w.int8(0)
		w.int32(1)
		w.string(topic)
		w.int32(int32(partitions))
		for p := 0; p < partitions; p++ {
			w.int32(int32(p))
			w.int32(noLeaderEpoch)
			w.int64(-1) // latest
		}
	})
	if err != nil {
		return nil, err
	}
	r.int32()
	r.int32()
	r.string()
	ends := make([]int64, partitions)
	for n := r.int32(); n > 0 && r.err == nil; n-- {
		partition := r.int32()
		if code := r.int16(); code != 0 {
			return nil, kafkaError{fmt.Sprintf("ListOffsets of %s-%d", topic, partition), code}
		}
		r.int64() // timestamp
		end := r.int64()
		r.int32() // leader epoch
		if int(partition) >= 0 && int(partition) < partitions {
			ends[partition] = end
		}
	}
	return ends, r.err
}

// producerID retries until the broker has a block of producer ids.
func (c *control) producerID(transactionalID string) (id int64, epoch int16, err error) {
	deadline := time.Now().Add(controlTimeout)
	for {
		id, epoch, err = c.initProducerID(transactionalID)
		if !isPassing(err) || time.Now().After(deadline) {
			return id, epoch, err
		}
		time.Sleep(pollPeriod)
	}
}

func (c *control) initProducerID(transactionalID string) (id int64, epoch int16, err error) {
	r, err := c.ask(initProducerIDKey, initProducerIDVersion, false, func(w *writer) {
		if transactionalID == "" {
			w.int16(-1)
		} else {
			w.string(transactionalID)
		}
		w.int32(timeoutMillis)
	})
	if err != nil {
		return 0, 0, err
	}
	r.int32()
	if code := r.int16(); code != 0 {
		return 0, 0, kafkaError{"InitProducerId", code}
	}
	return r.int64(), r.int16(), r.err
}
