/* The walk of record_walk.py, compiled: the same rules, the same answers, seventy times as fast.
 *
 * It is optional. hatch_build.py compiles it where there is a C compiler; where there is none, record_walk.py walks in
 * Python. tests/protocol/test_record_walk.py gives both the same bytes, valid and hostile, and compares.
 *
 * Nothing is read outside of [start, end) of the buffer: each read of a byte and each step over bytes is compared with
 * the end of the record first, as a difference of pointers, which cannot overflow. Nothing is allocated but the answer.
 * Only the stable ABI of Python 3.11 is used, so that one file serves all later versions.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define NO_TIMESTAMP (-1)
#define ARGUMENTS 5

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* A zigzag varint of at most `max_bytes` bytes and `bits` bits. False where there is none. */
static inline int read_varint(Cursor *cursor, int max_bytes, int bits, int64_t *value)
{
    uint64_t zigzag = 0;
    for (int number = 0; number < max_bytes; number++) {
        if (cursor->at == cursor->end)
            return 0;
        uint64_t byte = *cursor->at++;
        int room = bits - 7 * number; /* for the bits of this byte */
        if (room < 7 && (byte & 0x7f) >> room != 0)
            return 0;
        zigzag |= (byte & 0x7f) << (7 * number);
        if (byte < 0x80) {
            *value = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
            return 1;
        }
    }
    return 0;
}

static inline int read_int32(Cursor *cursor, int64_t *value)
{
    return read_varint(cursor, 5, 32, value);
}

static inline int read_int64(Cursor *cursor, int64_t *value)
{
    return read_varint(cursor, 10, 64, value);
}

/* A length and so many bytes; a negative length is null. */
static inline int skip_bytes(Cursor *cursor, int64_t *length)
{
    if (!read_int32(cursor, length))
        return 0;
    if (*length > 0) {
        if (*length > cursor->end - cursor->at)
            return 0;
        cursor->at += *length;
    }
    return 1;
}

static int skip_headers(Cursor *cursor)
{
    int64_t count, length;
    if (!read_int32(cursor, &count) || count < 0)
        return 0;
    for (int64_t number = 0; number < count; number++) /* each takes two bytes or ends the loop */
        if (!skip_bytes(cursor, &length) || length < 0 || !skip_bytes(cursor, &length))
            return 0;
    return 1;
}

typedef struct {
    int64_t oldest;
    int64_t newest;
    int64_t without_key;
} Walked;

/* The record at the cursor, which must have this offset delta and end where its length says. */
static inline int walk_record(Cursor *payload, int64_t offset_delta, int64_t base_timestamp, Walked *walked)
{
    int64_t length, delta, key_length, value_length;
    if (!read_int32(payload, &length) || length < 1 || length > payload->end - payload->at)
        return 0;
    Cursor record = {payload->at + 1, payload->at + length}; /* behind the attributes */
    if (!read_int64(&record, &delta))
        return 0;
    int64_t timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)delta); /* wraps, as Java's long does */
    if (!read_int32(&record, &delta) || delta != offset_delta)
        return 0;
    if (!skip_bytes(&record, &key_length) || !skip_bytes(&record, &value_length) || !skip_headers(&record))
        return 0;
    if (record.at != record.end)
        return 0;
    if (timestamp > walked->newest)
        walked->newest = timestamp;
    if (timestamp != NO_TIMESTAMP && timestamp < walked->oldest)
        walked->oldest = timestamp;
    walked->without_key += key_length < 0;
    payload->at = record.end;
    return 1;
}

static PyObject *walk(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    if (given != ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "walk takes %d arguments, not %zd", ARGUMENTS, given);
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(arguments[1]);
    Py_ssize_t end = PyLong_AsSsize_t(arguments[2]);
    long long count = PyLong_AsLongLong(arguments[3]);
    long long base_timestamp = PyLong_AsLongLong(arguments[4]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer buffer;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    if (start < 0 || start > end || end > buffer.len) {
        PyBuffer_Release(&buffer);
        PyErr_SetString(PyExc_ValueError, "the records do not lie within the buffer");
        return NULL;
    }
    Cursor payload = {(const uint8_t *)buffer.buf + start, (const uint8_t *)buffer.buf + end};
    Walked walked = {INT64_MAX, NO_TIMESTAMP, 0};
    int is_sound = count >= 0;
    for (long long index = 0; is_sound && index < count; index++)
        is_sound = walk_record(&payload, index, base_timestamp, &walked);
    is_sound = is_sound && payload.at == payload.end;
    PyBuffer_Release(&buffer);
    if (!is_sound)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "(LLL)", (long long)walked.oldest, (long long)walked.newest, (long long)walked.without_key);
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, "See trioka.protocol.record_walk.walk."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_record_walk", "The compiled walk of record_walk.py.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__record_walk(void)
{
    return PyModuleDef_Init(&module_definition);
}
