package main

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand"
	"time"
)

// A record batch, version 2, prepared once and sent many times:
//
//	 0 base offset        int64      21 attributes         int16     43 producer id    int64
//	 8 length             int32      23 last offset delta  int32     51 producer epoch int16
//	12 leader epoch       int32      27 base timestamp     int64     53 base sequence  int32
//	16 magic = 2          int8       35 max timestamp      int64     57 record count   int32
//	17 CRC-32C of all that follows   uint32                          61 records
const (
	crcAt           = 17
	attributesAt    = 21
	producerIDAt    = 43
	producerEpochAt = 51
	sequenceAt      = 53
	recordsAt       = 61

	transactional = 1 << 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type batch struct {
	bytes   []byte
	records int
}

// newBatch fills a batch with records of valueSize bytes, without keys, until another one would exceed batchSize, but
// with at least one record. This is how a producer's batch.size works.
func newBatch(valueSize, batchSize int) batch {
	value := newValue(valueSize)
	var records writer
	count := 0
	for {
		record := encodeRecord(count, value)
		if count > 0 && recordsAt+len(records.bytes)+len(record) > batchSize {
			break
		}
		records.raw(record)
		count++
		if recordsAt+len(records.bytes) >= batchSize {
			break
		}
	}
	return batchOf(records, count, 0)
}

// newTransactionalBatch makes a batch with a number of records that belongs to a transaction.
func newTransactionalBatch(valueSize, count int) batch {
	value := newValue(valueSize)
	var records writer
	for i := 0; i < count; i++ {
		records.raw(encodeRecord(i, value))
	}
	return batchOf(records, count, transactional)
}

func newValue(size int) []byte {
	value := make([]byte, size)
	random := rand.New(rand.NewSource(1))
	for i := range value {
		value[i] = byte('a' + random.Intn(26))
	}
	return value
}

func batchOf(records writer, count int, attributes int16) batch {
	now := time.Now().UnixMilli()
	var w writer
	w.int64(0)
	w.int32(int32(recordsAt - 12 + len(records.bytes)))
	w.int32(-1)
	w.int8(2)
	w.int32(0) // the CRC, below
	w.int16(attributes)
	w.int32(int32(count - 1))
	w.int64(now)
	w.int64(now)
	w.int64(-1)
	w.int16(-1)
	w.int32(-1)
	w.int32(int32(count))
	w.raw(records.bytes)
	setCRC(w.bytes)
	return batch{w.bytes, count}
}

func encodeRecord(offsetDelta int, value []byte) []byte {
	var body writer
	body.int8(0)
	body.varint(0) // timestamp delta
	body.varint(int64(offsetDelta))
	body.varint(-1) // no key
	body.varint(int64(len(value)))
	body.raw(value)
	body.varint(0) // no headers
	var w writer
	w.varint(int64(len(body.bytes)))
	w.raw(body.bytes)
	return w.bytes
}

func setCRC(batch []byte) {
	binary.BigEndian.PutUint32(batch[crcAt:], crc32.Checksum(batch[attributesAt:], castagnoli))
}

// setProducer sets the idempotent producer of a batch. setSequence computes the CRC.
func setProducer(batch []byte, id int64, epoch int16) {
	binary.BigEndian.PutUint64(batch[producerIDAt:], uint64(id))
	binary.BigEndian.PutUint16(batch[producerEpochAt:], uint16(epoch))
}

// setSequence turns a copy of an idempotent batch into the next one. The CRC runs at memory speed, so nothing is
// cached.
func setSequence(batch []byte, sequence int32) {
	binary.BigEndian.PutUint32(batch[sequenceAt:], uint32(sequence))
	setCRC(batch)
}
