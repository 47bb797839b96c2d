package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// TLS, for all commands by -tls. The loads use raw sockets only, so each TLS connection is a socket pair with two
// goroutines between it and crypto/tls. That costs the generator more than TLS itself, but the same with each broker.

const relayBytes = 64 << 10

// Certificates are not verified, because only the broker's cost matters.
var tlsConfig *tls.Config

func useTLS() {
	tlsConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}

func dialBroker(address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: controlTimeout}
	if tlsConfig != nil {
		return tls.DialWithDialer(dialer, "tcp", address, tlsConfig)
	}
	return dialer.Dial("tcp", address)
}

func connectTLS(address string) (*socket, error) {
	conn, err := dialBroker(address)
	if err != nil {
		return nil, err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(pair[1]), "relay")
	relay, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, err
	}
	copyAll := func(to, from net.Conn) {
		io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, relayBytes))
		to.Close()
		from.Close()
	}
	go copyAll(conn, relay)
	go copyAll(relay, conn)
	if err := greet(pair[0]); err != nil {
		return nil, err
	}
	return &socket{fd: pair[0]}, syscall.SetNonblock(pair[0], true)
}

type handshakeOutcome struct {
	PerSecond float64 `json:"per_second"`
	Failed    int64   `json:"failed"`
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"broker_cpu_seconds"`
	Median    float64 `json:"median_millis"`
}

// handshakes connects, sends ApiVersions and closes, with this many clients at once; at most `rate` per second.
func handshakes(address string, clients, rate int, pids []int, warmup, length time.Duration) (any, error) {
	var count, failed atomic.Int64
	var mutex sync.Mutex
	var taken []float64
	var measuring, over atomic.Bool
	var wait sync.WaitGroup
	var ticks <-chan time.Time
	if rate > 0 {
		ticker := time.NewTicker(time.Second / time.Duration(rate))
		defer ticker.Stop()
		ticks = ticker.C
	}
	for i := 0; i < clients; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for !over.Load() {
				if ticks != nil {
					<-ticks
				}
				began := time.Now()
				c, err := dial(address)
				if err != nil {
					failed.Add(1)
					continue
				}
				c.close()
				if measuring.Load() {
					count.Add(1)
					mutex.Lock()
					taken = append(taken, float64(time.Since(began).Microseconds())/1000)
					mutex.Unlock()
				}
			}
		}()
	}
	time.Sleep(warmup)
	before, err := cpuSeconds(pids)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	measuring.Store(true)
	time.Sleep(length)
	over.Store(true)
	seconds := time.Since(began).Seconds()
	after, err := cpuSeconds(pids)
	wait.Wait()
	if len(taken) == 0 {
		return nil, fmt.Errorf("no handshake succeeded, %d failed", failed.Load())
	}
	sort.Float64s(taken)
	return handshakeOutcome{float64(count.Load()) / seconds, failed.Load(), seconds, after - before, taken[len(taken)/2]}, err
}
