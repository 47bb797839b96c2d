// Load for a Kafka broker, from one thread and without a client library: requests are prepared once and replayed, and
// responses are parsed only for their correlation id and error codes. Each command prints one JSON object.
//
//	load produce   as many batches as the broker takes, to a fresh topic
//	load transact  one transaction after the other, of one batch each, on every connection
//	load latency   one record at a time, at a fixed rate; with -consume, until it has arrived at a consumer
//	load replicate the same with acks=all and several leaders, on a topic that exists
//	load fill      write a log to read from
//	load fetch     read it, again and again
//	load stream    read all partitions of it in one fetch session
//	load tail      one record at a time through a session over many silent partitions
//	load handshake connect, ask for ApiVersions and close, again and again
//	load create    a topic, and wait for its leaders
//	load delete    a topic
//	load show      the prepared requests in hexadecimal, for tests
package main

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("which command: produce, transact, latency, replicate, fill, fetch, stream, tail, handshake, create, delete or show?"))
	}
	debug.SetGCPercent(-1) // little is allocated after the start, and collections would cause pauses
	runtime.LockOSThread()
	result, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fail(err)
	}
	json.NewEncoder(os.Stdout).Encode(result)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func run(command string, arguments []string) (any, error) {
	var o produceOptions
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	flags.StringVar(&o.address, "address", "127.0.0.1:9092", "host and port of the broker")
	flags.StringVar(&o.topic, "topic", "load", "the topic; produce and latency create and delete it")
	flags.IntVar(&o.partitions, "partitions", 1, "of the topic; connections are dealt out to them")
	flags.IntVar(&o.connections, "connections", 1, "how many")
	flags.IntVar(&o.inFlight, "in-flight", 5, "requests per connection that may be unanswered")
	flags.IntVar(&o.acks, "acks", 1, "1 or -1; with 0 there would be nothing to count")
	flags.IntVar(&o.valueSize, "record", 1024, "bytes of a record's value")
	flags.IntVar(&o.batchSize, "batch", 16384, "bytes of a batch at most; a batch has one record at least")
	flags.BoolVar(&o.idempotent, "idempotent", false, "with producer id and sequences")
	flags.BoolVar(&o.spread, "spread", false, "each request carries a batch for every partition")
	flags.BoolVar(&o.rotate, "rotate", false, "each request goes to the next partition")
	flags.IntVar(&o.idle, "idle", 0, "connections besides that say nothing")
	flags.BoolVar(&o.existing, "existing", false, "the topic is there already, and stays")
	flags.StringVar(&o.settings, "config", "", "of the topic: key=value,key=value")
	leaders := flags.String("leaders", "", "of replicate, for each partition: host:port,host:port")
	pids := flags.String("pid", "", "the process whose CPU is measured; of several brokers, all: 1,2,3")
	seconds := flags.Float64("seconds", 3, "length of the measure")
	warmup := flags.Float64("warmup", 1, "seconds before it that do not count")
	minCPU := flags.Float64("min-cpu", 0, "seconds of CPU that the broker must have used before the measure ends")
	maxBytes := flags.Int64("max-bytes", 0, "write or fetch no more than this; 0 is no limit")
	count := flags.Int("count", 100, "records of a transaction")
	size := flags.Int("size", 1<<20, "bytes of a Fetch")
	partitionSize := flags.Int("partition-size", 8<<10, "bytes that a stream asks of each partition at a time")
	places := flags.Int("places", 0, "of the log, evenly spread: fetch at each of them once, then at random; 0 reads on")
	rate := flags.Int("rate", 1000, "records per second")
	consume := flags.Bool("consume", false, "measure until a consumer has the record")
	ordinary := flags.Bool("ordinary", false, "a client of the usual priority")
	secured := flags.Bool("tls", false, "connect by TLS; fetch needs -copy then")
	copies := flags.Bool("copy", false, "copy fetched records out of the kernel before they are thrown away")
	flags.Parse(arguments)
	if *secured {
		useTLS()
	}

	processes, err := numbers(*pids)
	if err != nil {
		return nil, err
	}
	w := &window{pids: processes, warmup: duration(*warmup), length: duration(*seconds), maxBytes: *maxBytes, minCPU: *minCPU}
	switch command {
	case "produce":
		return produce(o, w)
	case "transact":
		return transact(o, *count, w)
	case "latency":
		return latency(latencyOptions{
			produceOptions: o, rate: *rate, seconds: *seconds, warmup: *warmup, consume: *consume, ordinary: *ordinary,
		})
	case "replicate":
		return replicate(replicateOptions{o, split(*leaders), processes, *rate, *seconds, *warmup})
	case "fill":
		return fill(o, *maxBytes, processes)
	case "fetch":
		return fetch(fetchOptions{o.address, o.topic, o.connections, *size, o.valueSize, o.batchSize, *copies, *places}, w)
	case "stream":
		return stream(o, *size, *partitionSize, w)
	case "tail":
		return tail(o, w)
	case "handshake":
		return handshakes(o.address, o.connections, *rate, processes, w.warmup, w.length)
	case "create", "delete":
		return struct{}{}, topic(command, o)
	case "show":
		return show(o, *size, *count), nil
	}
	return nil, fmt.Errorf("there is no command %s", command)
}

func numbers(text string) (found []int, err error) {
	for _, each := range split(text) {
		number, err := strconv.Atoi(each)
		if err != nil {
			return nil, fmt.Errorf("-pid: %q is not a number", each)
		}
		found = append(found, number)
	}
	return found, nil
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func topic(command string, o produceOptions) error {
	c, err := dial(o.address)
	if err != nil {
		return err
	}
	defer c.close()
	if command == "delete" {
		return c.deleteTopic(o.topic)
	}
	if err := c.createTopic(o.topic, o.partitions, o.settings); err != nil {
		return err
	}
	_, err = c.topicID(o.topic, o.partitions)
	return err
}

// fill writes a log of equal batches, or more of them to an existing topic. The topic stays.
func fill(o produceOptions, bytes int64, pids []int) (outcome, error) {
	if !o.existing {
		if err := topic("create", o); err != nil {
			return outcome{}, err
		}
	}
	c, err := dial(o.address)
	if err != nil {
		return outcome{}, err
	}
	defer c.close()
	const noMatterHowLong = time.Hour
	return produceAndCount(o, &window{pids: pids, length: noMatterHowLong, maxBytes: bytes}, c)
}

func show(o produceOptions, size, count int) map[string]string {
	prepared := newBatch(o.valueSize, o.batchSize)
	produced, batchAt := produceRequest(o.topic, 0, int16(o.acks), prepared.bytes)
	if o.idempotent {
		last := len(produced) - 3
		setProducer(produced[batchAt:last], 7, 1)
		setSequence(produced[batchAt:last], 42)
	}
	setCorrelation(produced, 5)
	fetched, offsetAt := fetchRequest(make([]byte, 16), 0, int32(size), 1, 500)
	setFetchOffset(fetched, offsetAt, 1234)
	setCorrelation(fetched, 6)
	written, _ := transactionalProduceRequest("id", o.topic, 0, newTransactionalBatch(o.valueSize, count).bytes)
	setCorrelation(written, 7)
	spread := spreadRequest(o.topic, 3, int16(o.acks), prepared.bytes)
	asked := newSession(nil, make([]byte, 16), []int64{7, 8, 9}, size, 8<<10)
	asked.changed, asked.id, asked.epoch = []int32{2}, 11, 12
	return map[string]string{
		"spread":   hex.EncodeToString(spread),
		"session":  hex.EncodeToString(asked.request()),
		"produce":  hex.EncodeToString(produced),
		"fetch":    hex.EncodeToString(fetched),
		"transact": hex.EncodeToString(written),
	}
}
