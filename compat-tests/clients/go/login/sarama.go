package main

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Token is asked for by OAUTHBEARER.
func (l *login) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: l.password}, nil
}

func bySarama(l *login) ([]byte, error) {
	return withSarama(l, sarama.NewConfig())
}

func bySaramaWithoutHeaders(l *login) ([]byte, error) {
	config := sarama.NewConfig()
	config.Net.SASL.Version = sarama.SASLHandshakeV0
	config.ApiVersionsRequest = false // Sarama sends it first only with version 1
	return withSarama(l, config)
}

func withSarama(l *login, config *sarama.Config) ([]byte, error) {
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Net.SASL.Enable = l.mechanism != "TLS"
	config.Net.SASL.User = l.user
	config.Net.SASL.Password = l.password
	config.Net.SASL.Mechanism = sarama.SASLMechanism(l.mechanism)
	config.Net.SASL.TokenProvider = l
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: l.mechanism} }
	config.Net.TLS.Enable = l.tls != nil
	config.Net.TLS.Config = l.tls
	client, err := sarama.NewClient([]string{l.bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, err
	}
	message := &sarama.ProducerMessage{Topic: l.topic, Value: sarama.StringEncoder("value")}
	if _, _, err := producer.SendMessage(message); err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	partition, err := consumer.ConsumePartition(l.topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	select {
	case found := <-partition.Messages():
		return found.Value, nil
	case <-time.After(patience):
		return nil, errors.New("no record came")
	}
}

// scramClient is what Sarama leaves to its users: the exchange of RFC 5802.
type scramClient struct {
	mechanism, user, password, bare, verdict string
	step                                     int
}

func (c *scramClient) hash() hash.Hash {
	if c.mechanism == sarama.SASLTypeSCRAMSHA512 {
		return sha512.New()
	}
	return sha256.New()
}

func (c *scramClient) sign(key []byte, text string) []byte {
	mac := hmac.New(c.hash, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func (c *scramClient) Begin(user, password, _ string) error {
	c.user, c.password = user, password
	return nil
}

func (c *scramClient) Done() bool { return c.step == 3 }

func (c *scramClient) Step(challenge string) (string, error) {
	c.step++
	if c.step == 1 {
		nonce := base64.StdEncoding.EncodeToString([]byte(time.Now().String()))
		c.bare = "n=" + strings.NewReplacer("=", "=3D", ",", "=2C").Replace(c.user) + ",r=" + nonce
		return "n,," + c.bare, nil
	}
	if c.step == 3 {
		if challenge != c.verdict {
			return "", errors.New("the server does not know the password")
		}
		return "", nil
	}
	parts := strings.SplitN(challenge, ",", 3)
	salt, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(parts[1], "s="))
	if err != nil {
		return "", err
	}
	var iterations int
	if _, err := fmt.Sscanf(parts[2], "i=%d", &iterations); err != nil {
		return "", err
	}
	salted, err := pbkdf2.Key(c.hash, c.password, salt, iterations, c.hash().Size())
	if err != nil {
		return "", err
	}
	key := c.sign(salted, "Client Key")
	digest := c.hash()
	digest.Write(key)
	final := "c=biws," + parts[0]
	signed := c.bare + "," + challenge + "," + final
	for index, each := range c.sign(digest.Sum(nil), signed) {
		key[index] ^= each
	}
	c.verdict = "v=" + base64.StdEncoding.EncodeToString(c.sign(c.sign(salted, "Server Key"), signed))
	return final + ",p=" + base64.StdEncoding.EncodeToString(key), nil
}
