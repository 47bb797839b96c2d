package main

import "encoding/binary"

// The two requests of the hot path, prepared as complete frames. The fields that change between sends are at known
// positions: the correlation id, the batch of a Produce, the offset of a Fetch.

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
	w.int32(0) // the correlation id, set at each send
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

// produceRequest returns the frame and the position of the batch in it.
func produceRequest(topic string, partition int32, acks int16, batch []byte) (frame []byte, batchAt int) {
	var w writer
	header(&w, produceKey, produceVersion, true)
	w.uvarint(0) // no transactional id
	return produceBody(&w, topic, partition, acks, batch)
}

// transactionalProduceRequest adds a transactional id; in its version, Produce also adds the partition to the
// transaction.
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

// produceErrorAt is the position of the partition's error code in a Produce response with one partition, from the start
// of its frame: length 4, correlation id 4, tags 1, array 1, topic, array 1, partition 4.
func produceErrorAt(topic string) int { return 4 + 4 + 1 + 1 + (1 + len(topic)) + 1 + 4 }

// fetchRequest returns the frame and the position of the fetch offset in it. It uses no fetch session.
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
	w.int64(-1) // log start offset, which only followers set
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

// fetchHeadSize is enough of a Fetch response with one partition to read its errors and the size of its records.
const fetchHeadSize = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1 + 4 + 2 + 8 + 8 + 8 + 1 + 4 + 5

// fetchHead reads the start of a Fetch response, after its length. A complete response without records may be shorter
// than the head.
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
	r.count()     // aborted transactions: none, because the load writes no transactions
	r.int32()     // preferred read replica
	return correlation, errorCode, r.count(), r.err
}
