// The Sarama client, told what to do line by line. It does not negotiate: the versions that it speaks follow from the
// Kafka version in its configuration. A second argument names one; without it, it is the newest that Sarama knows.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"

	"trioka/compat/clients/script"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":      sarama.NewBalanceStrategyRange,
	"roundrobin": sarama.NewBalanceStrategyRoundRobin,
	"sticky":     sarama.NewBalanceStrategySticky,
}

type client struct {
	bootstrap []string
	version   sarama.KafkaVersion
	admin     sarama.ClusterAdmin
}

func main() {
	c := &client{bootstrap: os.Args[1:2], version: sarama.MaxVersion}
	if len(os.Args) > 2 {
		version, err := sarama.ParseKafkaVersion(os.Args[2])
		if err != nil {
			panic(err)
		}
		c.version = version
	}
	admin, err := sarama.NewClusterAdmin(c.bootstrap, c.config())
	if err != nil {
		panic(err)
	}
	defer admin.Close()
	c.admin = admin
	script.Run(map[string]script.Obey{
		"cluster":         c.cluster,
		"topics":          c.topics,
		"create_topic":    c.createTopic,
		"delete_topic":    c.deleteTopic,
		"describe_topic":  c.describeTopic,
		"add_partitions":  c.addPartitions,
		"describe_config": c.describeConfig,
		"alter_config":    c.alterConfig,
		"delete_records":  c.deleteRecords,
		"produce":         c.produce,
		"consume":         c.consume,
		"offset_at":       c.offsetAt,
		"group":           c.group,
	}, codeOf)
}

func (c *client) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = c.version
	config.Consumer.Return.Errors = true
	return config
}

// codeOf looks through all that Sarama wraps around the code: several types, some of which hold several errors.
func codeOf(err error) int {
	var told sarama.KError
	var topic *sarama.TopicError
	var partition *sarama.TopicPartitionError
	switch {
	case errors.As(err, &told):
		return int(told)
	case errors.As(err, &topic):
		return int(topic.Err)
	case errors.As(err, &partition):
		return int(partition.Err)
	}
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) && len(failed) > 0 {
		return codeOf(failed[0].Err)
	}
	var refused script.Refused
	if errors.As(err, &refused) {
		return refused.Code
	}
	return script.NoCode
}

func (c *client) cluster(*script.Command) (any, error) {
	brokers, controller, err := c.admin.DescribeCluster()
	rows := [][]any{}
	for _, broker := range brokers {
		var host string
		var port int
		_, _ = fmt.Sscanf(split(broker.Addr()), "%s %d", &host, &port)
		rows = append(rows, []any{broker.ID(), host, port})
	}
	return map[string]any{"brokers": rows, "controller": controller}, err
}

// split puts a space in the place of the last colon.
func split(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			return address[:i] + " " + address[i+1:]
		}
	}
	return address
}

func (c *client) topics(*script.Command) (any, error) {
	told, err := c.admin.ListTopics()
	names := []string{}
	for name := range told {
		names = append(names, name)
	}
	return names, err
}

func (c *client) createTopic(command *script.Command) (any, error) {
	config := map[string]*string{}
	for key, value := range command.Config {
		config[key] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: command.Partitions, ReplicationFactor: 1, ConfigEntries: config}
	return nil, c.admin.CreateTopic(command.Topic, detail, false)
}

func (c *client) deleteTopic(command *script.Command) (any, error) {
	return nil, c.admin.DeleteTopic(command.Topic)
}

func (c *client) describeTopic(command *script.Command) (any, error) {
	told, err := c.admin.DescribeTopics([]string{command.Topic})
	if err != nil {
		return nil, err
	}
	if told[0].Err != sarama.ErrNoError {
		return nil, told[0].Err
	}
	partitions := [][]any{}
	for _, p := range told[0].Partitions {
		partitions = append(partitions, []any{p.ID, p.Leader, p.Replicas, p.Isr})
	}
	return partitions, nil
}

func (c *client) addPartitions(command *script.Command) (any, error) {
	return nil, c.admin.CreatePartitions(command.Topic, command.Total, nil, false)
}

func (c *client) describeConfig(command *script.Command) (any, error) {
	kind := sarama.TopicResource
	if command.Kind == "broker" {
		kind = sarama.BrokerResource
	}
	told, err := c.admin.DescribeConfig(sarama.ConfigResource{Type: kind, Name: command.Name})
	keys := map[string]string{}
	for _, entry := range told {
		keys[entry.Name] = entry.Value
	}
	return keys, err
}

// alterConfig changes single keys if the version knows of that, and else replaces the whole configuration.
func (c *client) alterConfig(command *script.Command) (any, error) {
	if !c.version.IsAtLeast(sarama.V2_3_0_0) {
		whole := map[string]*string{}
		for key, value := range command.Put {
			whole[key] = &value
		}
		return nil, c.admin.AlterConfig(sarama.TopicResource, command.Topic, whole, false)
	}
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for key, value := range command.Put {
		changes[key] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
		}
	}
	for _, key := range command.Drop {
		changes[key] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationDelete}
	}
	return nil, c.admin.IncrementalAlterConfig(sarama.TopicResource, command.Topic, changes, false)
}

func (c *client) deleteRecords(command *script.Command) (any, error) {
	return nil, c.admin.DeleteRecords(command.Topic, map[int32]int64{command.Partition: command.Before})
}

func (c *client) produce(command *script.Command) (any, error) {
	config := c.config()
	config.Producer.Compression = codecs[command.Codec]
	config.Producer.RequiredAcks = sarama.RequiredAcks(command.Acks)
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	if command.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(c.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(command.Records))
	for i, record := range command.Records {
		messages[i] = message(command.Topic, record)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, sent := range messages {
		if command.Acks != 0 {
			offsets = append(offsets, sent.Offset)
		}
	}
	return offsets, nil
}

func message(topic string, record script.Record) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{
		Topic:     topic,
		Partition: int32(record.Place),
		Timestamp: time.UnixMilli(record.Timestamp),
	}
	// An encoder that holds nil is not nil.
	if record.Key != nil {
		message.Key = sarama.ByteEncoder(record.Key)
	}
	if record.Value != nil {
		message.Value = sarama.ByteEncoder(record.Value)
	}
	for _, header := range record.Headers {
		row := sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value}
		message.Headers = append(message.Headers, row)
	}
	return message
}

func (c *client) consume(command *script.Command) (any, error) {
	consumer, err := sarama.NewConsumer(c.bootstrap, c.config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	start := command.Offset
	if start == script.Earliest {
		start = sarama.OffsetOldest
	}
	partition, err := consumer.ConsumePartition(command.Topic, command.Partition, start)
	if err != nil {
		return nil, err
	}
	defer partition.AsyncClose()
	patience := time.After(script.Patience)
	found := []script.Record{}
	for len(found) < command.Count {
		select {
		case message := <-partition.Messages():
			found = append(found, read(message))
		case err := <-partition.Errors():
			return nil, err.Err
		case <-patience:
			return nil, fmt.Errorf("only %d came", len(found))
		}
	}
	return found, nil
}

func read(message *sarama.ConsumerMessage) script.Record {
	row := script.Record{
		Place:     message.Offset,
		Key:       message.Key,
		Value:     message.Value,
		Timestamp: message.Timestamp.UnixMilli(),
	}
	for _, header := range message.Headers {
		row.Headers = append(row.Headers, script.Header{Name: string(header.Key), Value: header.Value})
	}
	return row
}

func (c *client) offsetAt(command *script.Command) (any, error) {
	connection, err := sarama.NewClient(c.bootstrap, c.config())
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return connection.GetOffset(command.Topic, command.Partition, command.Timestamp)
}

// member is told by Sarama what it has, one generation after the other.
type member struct {
	script.Member
	topic string
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.Gains(session.Claims()[m.topic])
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	m.Loses(session.Claims()[m.topic])
	return nil
}

// ConsumeClaim commits what it told of before it looks at the next.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.Saw([][2]int64{{int64(message.Partition), message.Offset}})
		session.MarkMessage(message, "")
		session.Commit()
	}
	return nil
}

// group is a member until its input ends. Sarama returns from Consume at every rebalance, and wants to be called again.
func (c *client) group(command *script.Command) (any, error) {
	config := c.config()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[command.Assignor]()}
	config.Consumer.Group.Session.Timeout = time.Duration(command.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(c.bootstrap, command.Group, config)
	if err != nil {
		return nil, err
	}
	go func() {
		for err := range group.Errors() {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	m := &member{topic: command.Topic}
	left := m.Left()
	for left.Err() == nil {
		if err := group.Consume(left, []string{command.Topic}, m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond) // the broker may be away
		}
	}
	return nil, group.Close()
}
