package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func byKafkaGo(l *login) ([]byte, error) {
	var mechanism sasl.Mechanism
	var err error
	switch l.mechanism {
	case "PLAIN":
		mechanism = plain.Mechanism{Username: l.user, Password: l.password}
	case "SCRAM-SHA-256":
		mechanism, err = scram.Mechanism(scram.SHA256, l.user, l.password)
	case "SCRAM-SHA-512":
		mechanism, err = scram.Mechanism(scram.SHA512, l.user, l.password)
	}
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	transport := &kafka.Transport{SASL: mechanism, TLS: l.tls}
	writer := &kafka.Writer{
		Addr:                   kafka.TCP(l.bootstrap),
		Topic:                  l.topic,
		Transport:              transport,
		AllowAutoTopicCreation: true,
		RequiredAcks:           kafka.RequireAll,
		BatchTimeout:           time.Millisecond,
	}
	defer writer.Close()
	for {
		err := writer.WriteMessages(within, kafka.Message{Value: []byte("value")})
		if err == nil {
			break
		}
		var known kafka.Error // such as an unknown topic, which is being created
		if !errors.As(err, &known) || !known.Temporary() {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{l.bootstrap},
		Topic:   l.topic,
		MaxWait: 100 * time.Millisecond,
		Dialer:  &kafka.Dialer{SASLMechanism: mechanism, TLS: l.tls, Timeout: patience},
	})
	defer reader.Close()
	message, err := reader.ReadMessage(within)
	return message.Value, err
}
