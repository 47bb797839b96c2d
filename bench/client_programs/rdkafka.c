/* librdkafka from C, as its own performance tool uses it: records to a topic, or all records of a topic.
 *
 *     rdkafka produce ADDRESS TOPIC RECORDS SIZE
 *     rdkafka consume ADDRESS TOPIC RECORDS SIZE
 *
 * It prints the seconds that this took. All settings are defaults. The library is the one that confluent-kafka brings
 * along, and comes without its header; so what is needed of it is declared here.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct client client;
typedef struct settings settings;
typedef struct topic topic;
typedef struct topic_settings topic_settings;

typedef struct {
    int error;
    topic *from;
    int32_t partition;
    void *payload;
    size_t size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *private;
} message;

settings *rd_kafka_conf_new(void);
int rd_kafka_conf_set(settings *, const char *key, const char *value, char *said, size_t said_size);
void rd_kafka_conf_set_dr_msg_cb(settings *, void (*)(client *, const message *, void *));
client *rd_kafka_new(int kind, settings *, char *said, size_t said_size);
topic *rd_kafka_topic_new(client *, const char *name, topic_settings *);
int rd_kafka_produce(topic *, int32_t partition, int flags, void *payload, size_t size, const void *key, size_t key_size,
                     void *private);
int rd_kafka_poll(client *, int timeout_ms);
int rd_kafka_flush(client *, int timeout_ms);
int rd_kafka_consume_start(topic *, int32_t partition, int64_t offset);
int rd_kafka_consume_stop(topic *, int32_t partition);
ssize_t rd_kafka_consume_batch(topic *, int32_t partition, int timeout_ms, message **, size_t);
void rd_kafka_message_destroy(message *);
const char *rd_kafka_err2str(int error);
int rd_kafka_last_error(void);
int rd_kafka_outq_len(client *);

enum { PRODUCER = 0, CONSUMER = 1, COPY = 2, QUEUE_FULL = -184, AT_END = -191, BEGINNING = -2, PATIENCE_MS = 120000 };
enum { AT_ONCE = 1000, PARTITION = 0, SAID = 512 };

static long delivered, refused;
static int why;

static void acknowledged(client *from, const message *sent, void *unused) {
    (void)from, (void)unused;
    if (sent->error) {
        refused++;
        why = sent->error;
    } else {
        delivered++;
    }
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void fail(const char *said) {
    fprintf(stderr, "%s\n", said);
    exit(1);
}

static client *connected(int kind, const char *address) {
    char said[SAID] = "";
    settings *chosen = rd_kafka_conf_new();
    if (rd_kafka_conf_set(chosen, "bootstrap.servers", address, said, sizeof said)) fail(said);
    if (kind == PRODUCER) rd_kafka_conf_set_dr_msg_cb(chosen, acknowledged);
    client *made = rd_kafka_new(kind, chosen, said, sizeof said);
    if (!made) fail(said);
    return made;
}

static double produce(const char *address, const char *name, long records, size_t size) {
    client *producer = connected(PRODUCER, address);
    topic *to = rd_kafka_topic_new(producer, name, NULL);
    char *value = malloc(size);
    memset(value, 'a', size);
    double begun = now();
    for (long n = 0; n < records; n++) {
        while (rd_kafka_produce(to, PARTITION, COPY, value, size, NULL, 0, NULL)) {
            if (rd_kafka_last_error() != QUEUE_FULL) fail(rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(producer, 10);
        }
        rd_kafka_poll(producer, 0);
    }
    int error = rd_kafka_flush(producer, PATIENCE_MS);
    double seconds = now() - begun;
    if (error || refused || delivered != records) fail(rd_kafka_err2str(error ? error : why));
    return seconds;
}

static double consume(const char *address, const char *name, long records, size_t size) {
    client *consumer = connected(CONSUMER, address);
    topic *from = rd_kafka_topic_new(consumer, name, NULL);
    static message *got[AT_ONCE];
    double begun = now();
    if (rd_kafka_consume_start(from, PARTITION, BEGINNING)) fail("the consumer does not start");
    for (long seen = 0; seen < records;) {
        ssize_t count = rd_kafka_consume_batch(from, PARTITION, 1000, got, AT_ONCE);
        if (count < 0) fail(rd_kafka_err2str(rd_kafka_last_error()));
        for (ssize_t n = 0; n < count; n++) {
            if (got[n]->error && got[n]->error != AT_END) fail(rd_kafka_err2str(got[n]->error));
            if (!got[n]->error && got[n]->size == size) seen++;
            rd_kafka_message_destroy(got[n]);
        }
        if (now() - begun > PATIENCE_MS / 1000.0) fail("not all records came");
    }
    double seconds = now() - begun;
    rd_kafka_consume_stop(from, PARTITION);
    return seconds;
}

int main(int count, char **arguments) {
    if (count != 6) fail("produce or consume, an address, a topic, how many records, and of what size?");
    int produces = !strcmp(arguments[1], "produce");
    double (*run)(const char *, const char *, long, size_t) = produces ? produce : consume;
    printf("%f\n", run(arguments[2], arguments[3], atol(arguments[4]), (size_t)atol(arguments[5])));
    fflush(stdout);
    _Exit(0); /* the library's threads need no farewell */
}
