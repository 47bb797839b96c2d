package main

import "encoding/binary"

// The two requests of the hot path, prepared as whole frames. What changes from one sending to the next stands at
// known places: the correlation id, the batch of a Produce, the offset of a Fetch.

const (
	produceKey, produceVersion                 = 0, 11
	transactionalProduceVersion                = 12
	fetchKey, fetchVersion                     = 1, 16
	listOffsetsKey, listOffsetsVersion         = 2, 5
	metadataKey, metadataVersion               = 3, 12
	findCoordinatorKey, findCoordinatorVersion = 10, 1
	apiVersionsKey, apiVersionsVersion         = 18, 0
	createTopicsKey, createTopicsVersion       = 19, 4
	deleteTopicsKey, deleteTopicsVersion       = 20, 3
	initProducerIDKey, initProducerIDVersion   = 22, 1
	endTxnKey, endTxnVersion                   = 26, 5

	clientID       = "load"
	correlationAt  = 8
	timeoutMillis  = 30_000
	noLeaderEpoch  = -1
	noFetchSession = -1
	allReplicas    = -1
)

func header(w *writer, key, version int16, flexible bool) {
	w.int32(0) // the frame's length, known at the end
	w.int16(key)
	w.int16(version)
	w.int32(0) // the correlation id, set at each sending
	w.string(clientID)
	if flexible {
		w.noTags()
	}
}

func finish(w *writer) []byte {
	binary.BigEndian.PutUint32(w.bytes, uint32(len(w.bytes)-4))
	return w.bytes
}

func setCorrelation(frame []byte, id int32) {
	binary.BigEndian.PutUint32(frame[correlationAt:], uint32(id))
}

// produceRequest returns the frame and the place of the batch in it.
func produceRequest(topic string, partition int32, acks int16, batch []byte) (frame []byte, batchAt int) {
	var w writer
	header(&w, produceKey, produceVersion, true)
	w.uvarint(0) // no transactional id
	return produceBody(&w, topic, partition, acks, batch)
}

// transactionalProduceRequest is the same with a transactional id, and by its version says that the partition takes part.
func transactionalProduceRequest(id, topic string, partition int32, batch []byte) (frame []byte, batchAt int) {
	var w writer
	header(&w, produceKey, transactionalProduceVersion, true)
	w.compactString(id)
	return produceBody(&w, topic, partition, allReplicas, batch)
}

func produceBody(w *writer, topic string, partition int32, acks int16, batch []byte) (frame []byte, batchAt int) {
	w.int16(acks)
	w.int32(timeoutMillis)
	w.uvarint(1 + 1)
	w.compactString(topic)
	w.uvarint(1 + 1)
	w.int32(partition)
	w.uvarint(len(batch) + 1)
	batchAt = len(w.bytes)
	w.raw(batch)
	w.noTags() // of the partition, the topic, the request
	w.noTags()
	w.noTags()
	return finish(w), batchAt
}

// produceErrorAt is the place of the partition's error code in a Produce answer with one partition, from the start of
// its frame: length 4, correlation id 4, tags 1, array 1, topic, array 1, partition 4.
func produceErrorAt(topic string) int { return 4 + 4 + 1 + 1 + (1 + len(topic)) + 1 + 4 }

// fetchRequest returns the frame and the place of the fetch offset in it. There is no fetch session: each request
// stands for itself.
func fetchRequest(topicID []byte, partition, size, minBytes, maxWaitMillis int32) (frame []byte, offsetAt int) {
	var w writer
	header(&w, fetchKey, fetchVersion, true)
	w.int32(maxWaitMillis)
	w.int32(minBytes)
	w.int32(size)
	w.int8(0)  // read_uncommitted
	w.int32(0) // session id
	w.int32(noFetchSession)
	w.uvarint(1 + 1)
	w.raw(topicID)
	w.uvarint(1 + 1)
	w.int32(partition)
	w.int32(noLeaderEpoch)
	offsetAt = len(w.bytes)
	w.int64(0)
	w.int32(-1) // last fetched epoch
	w.int64(-1) // log start offset, a follower's business
	w.int32(size)
	w.noTags()
	w.noTags()
	w.uvarint(0 + 1) // forgotten topics
	w.compactString("")
	w.noTags()
	return finish(&w), offsetAt
}

func setFetchOffset(frame []byte, offsetAt int, offset int64) {
	binary.BigEndian.PutUint64(frame[offsetAt:], uint64(offset))
}

// fetchHeadSize is enough of a Fetch answer with one partition to know its errors and the size of its records.
const fetchHeadSize = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1 + 4 + 2 + 8 + 8 + 8 + 1 + 4 + 5

// fetchHead reads the start of a Fetch answer, from behind its length. An answer may be shorter than the head and still
// whole, when there is nothing to read.
func fetchHead(head []byte) (correlation int32, errorCode int16, recordsSize int, err error) {
	r := reader{bytes: head}
	correlation = r.int32()
	r.tags()
	r.int32() // throttle time
	errorCode = r.int16()
	r.int32() // session id
	if errorCode != 0 || r.count() == 0 {
		return correlation, errorCode, 0, r.err
	}
	r.take(16)
	r.count()
	r.int32() // partition
	errorCode = r.int16()
	r.take(3 * 8) // high watermark, last stable offset, log start offset
	r.count()     // aborted transactions: none, for nobody wrote any
	r.int32()     // preferred read replica
	return correlation, errorCode, r.count(), r.err
}
