package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"syscall"
	"time"
	"unsafe"
)

// Sockets without Go's own poller. One thread waits for all of them with epoll (edge-triggered, so that no descriptor
// has to be re-armed), reads the available bytes and writes what the kernel accepts. This costs two to three system
// calls per wake-up and no switch between goroutines, for one connection as for a thousand.

const (
	eventsAtOnce = 1024
	// Small enough to stay in the processor's cache, large enough that the cost of system calls is negligible.
	scratchSize  = 256 << 10
	pollMillis   = 100
	stallTimeout = 60 * time.Second // for a broker without warm-up on a busy machine
	edge         = 1 << 31          // EPOLLET, which the syscall package defines as a negative number
)

type socket struct {
	fd      int
	waiting []byte // bytes that the kernel has not accepted yet
}

func connect(address string) (*socket, error) {
	if tlsConfig != nil {
		return connectTLS(address)
	}
	resolved, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	to := &syscall.SockaddrInet4{Port: resolved.Port}
	copy(to.Addr[:], resolved.IP.To4())
	if err := syscall.Connect(fd, to); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	if err := greet(fd); err != nil {
		return nil, err
	}
	return &socket{fd: fd}, syscall.SetNonblock(fd, true)
}

// greet sends ApiVersions and waits for the response, as every client does. It also prevents a thousand connections
// from overflowing the broker's accept queue, in which each dropped connection costs a second.
func greet(fd int) error {
	wait := syscall.NsecToTimeval(int64(controlTimeout))
	syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait)
	var w writer
	header(&w, apiVersionsKey, apiVersionsVersion, false)
	if _, err := syscall.Write(fd, finish(&w)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	answer := make([]byte, 0, 4096)
	for len(answer) < 4 || len(answer) < 4+int(binary.BigEndian.Uint32(answer)) {
		var part [4096]byte
		n, err := syscall.Read(fd, part[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return fmt.Errorf("no answer to ApiVersions: %v", err)
		}
		answer = append(answer, part[:n]...)
	}
	return nil
}

// The raw calls below never block, so the scheduler is not notified of them.

// read returns 0 if no bytes are available.
func (s *socket) read(into []byte) (int, error) {
	return s.receive(unsafe.Pointer(&into[0]), len(into), 0)
}

// drop takes up to n bytes from the socket without copying them: for TCP, that is what MSG_TRUNC does.
func (s *socket) drop(n int) (int, error) { return s.receive(nil, n, syscall.MSG_TRUNC) }

func (s *socket) receive(into unsafe.Pointer, size, flags int) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(s.fd), uintptr(into), uintptr(size), uintptr(flags), 0, 0)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return 0, nil
		case errno != 0:
			return 0, fmt.Errorf("read: %w", errno)
		case n == 0:
			return 0, fmt.Errorf("the broker closed the connection")
		}
		return int(n), nil
	}
}

// send writes as much as the kernel accepts and keeps the rest. The bytes belong to the socket until it is idle again.
func (s *socket) send(bytes []byte) error {
	s.waiting = bytes
	return s.flush()
}

func (s *socket) idle() bool { return len(s.waiting) == 0 }

func (s *socket) flush() error {
	for len(s.waiting) > 0 {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(s.fd), uintptr(unsafe.Pointer(&s.waiting[0])), uintptr(len(s.waiting)))
		if errno == syscall.EINTR {
			continue
		}
		if errno == syscall.EAGAIN {
			return nil
		}
		if errno != 0 {
			return fmt.Errorf("write: %w", errno)
		}
		s.waiting = s.waiting[n:]
	}
	return nil
}

func (s *socket) close() { syscall.Close(s.fd) }

// poller waits for many descriptors; the caller identifies each by a number.
type poller struct {
	fd      int
	events  [eventsAtOnce]syscall.EpollEvent
	scratch []byte
	heard   time.Time
}

func newPoller() (*poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	return &poller{fd: fd, scratch: make([]byte, scratchSize), heard: time.Now()}, err
}

func (p *poller) add(fd, number int) error {
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLOUT | edge, Fd: int32(number)}
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &event)
}

// wait returns the ready descriptors, or none after a tenth of a second. A minute of silence is an error.
func (p *poller) wait() ([]syscall.EpollEvent, time.Time, error) {
	// A raw call: Go would wake a thread of its own before it waits, and another one afterwards, each time.
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), eventsAtOnce, pollMillis, 0, 0)
	now := time.Now()
	if errno == syscall.EINTR {
		return nil, now, nil
	}
	if errno != 0 {
		return nil, now, errno
	}
	if n > 0 {
		p.heard = now
	} else if now.Sub(p.heard) > stallTimeout {
		return nil, now, fmt.Errorf("the broker has not answered for %v", stallTimeout)
	}
	return p.events[:n], now, nil
}

func (p *poller) close() { syscall.Close(p.fd) }
