package main

import (
	"encoding/binary"
	"fmt"
)

// The primitive types of Kafka's protocol that a load generator needs: big-endian integers, strings with a 16-bit
// length (the older, "plain" messages) and compact strings and arrays with a varint of length + 1 (the "flexible"
// ones).

type writer struct{ bytes []byte }

func (w *writer) int8(v int8)   { w.bytes = append(w.bytes, byte(v)) }
func (w *writer) int16(v int16) { w.bytes = binary.BigEndian.AppendUint16(w.bytes, uint16(v)) }
func (w *writer) int32(v int32) { w.bytes = binary.BigEndian.AppendUint32(w.bytes, uint32(v)) }
func (w *writer) int64(v int64) { w.bytes = binary.BigEndian.AppendUint64(w.bytes, uint64(v)) }
func (w *writer) raw(v []byte)  { w.bytes = append(w.bytes, v...) }

func (w *writer) uvarint(v int) { w.bytes = binary.AppendUvarint(w.bytes, uint64(v)) }

// varint is the zigzag form, used inside of records only.
func (w *writer) varint(v int64) { w.bytes = binary.AppendVarint(w.bytes, v) }

func (w *writer) string(v string)        { w.int16(int16(len(v))); w.raw([]byte(v)) }
func (w *writer) compactString(v string) { w.uvarint(len(v) + 1); w.raw([]byte(v)) }
func (w *writer) noTags()                { w.uvarint(0) }

// reader stores its first error, so that a message is read to its end before the caller checks the error.
type reader struct {
	bytes []byte
	err   error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.bytes) {
		if r.err == nil {
			r.err = fmt.Errorf("an answer ended too early: %d bytes wanted, %d left", n, len(r.bytes))
		}
		return make([]byte, max(0, min(n, 16)))
	}
	taken := r.bytes[:n]
	r.bytes = r.bytes[n:]
	return taken
}

func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.bytes)
	if n <= 0 {
		n = len(r.bytes) + 1
	}
	r.take(n)
	return int(v)
}

func (r *reader) string() string        { return string(r.take(max(0, int(r.int16())))) }
func (r *reader) compactString() string { return string(r.take(max(0, r.uvarint()-1))) }

// count is the length of a compact array; a null one counts as empty.
func (r *reader) count() int { return max(0, r.uvarint()-1) }

func (r *reader) tags() {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		r.uvarint()
		r.take(r.uvarint())
	}
}
