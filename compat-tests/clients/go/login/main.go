// Logs in by SASL, writes a record and reads it again:
//
//	login franz|kafka-go|sarama|sarama-v0 BOOTSTRAP MECHANISM USER TOPIC [CA-FILE [OWN-FILE]]
//
// The password, or the bearer token of OAUTHBEARER, is on standard input. With a file of a CA it speaks TLS, with a file
// of its own it has a certificate; the mechanism TLS is no login. sarama-v0 sends SASL messages without headers. It prints the value that it has read.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 30 * time.Second

type login struct {
	bootstrap, mechanism, user, topic, password string
	tls                                         *tls.Config
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	password, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	l := &login{os.Args[2], os.Args[3], os.Args[4], os.Args[5], strings.TrimSpace(string(password)), nil}
	if len(os.Args) > 6 {
		authority, err := os.ReadFile(os.Args[6])
		if err != nil {
			fail(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		l.tls = &tls.Config{RootCAs: roots}
	}
	if len(os.Args) > 7 {
		own, err := tls.LoadX509KeyPair(os.Args[7], os.Args[7])
		if err != nil {
			fail(err)
		}
		l.tls.Certificates = []tls.Certificate{own}
	}
	value, err := map[string]func(*login) ([]byte, error){
		"franz": byFranz, "kafka-go": byKafkaGo, "sarama": bySarama, "sarama-v0": bySaramaWithoutHeaders,
	}[os.Args[1]](l)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(value))
}

func byFranz(l *login) ([]byte, error) {
	auth := scram.Auth{User: l.user, Pass: l.password}
	mechanism := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: l.user, Pass: l.password}.AsMechanism(),
		"SCRAM-SHA-256": auth.AsSha256Mechanism(),
		"SCRAM-SHA-512": auth.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: l.password}.AsMechanism(),
	}[l.mechanism]
	options := []kgo.Opt{
		kgo.SeedBrokers(l.bootstrap),
		kgo.SASL(mechanism),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(l.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if l.tls != nil {
		options = append(options, kgo.DialTLSConfig(l.tls))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	record := &kgo.Record{Topic: l.topic, Value: []byte("value")}
	if err := client.ProduceSync(within, record).FirstErr(); err != nil {
		return nil, err
	}
	for {
		fetched := client.PollFetches(within)
		if err := within.Err(); err != nil {
			return nil, err
		}
		if records := fetched.Records(); len(records) > 0 {
			return records[0].Value, nil
		}
	}
}
