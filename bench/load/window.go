package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The window of a measure; the warm-up before it does not count. Broker CPU is read from the process at both ends of
// the window, so that neither the start of the load nor the creation of a topic is included.

const (
	ticksPerSecond = 100 // USER_HZ, which is 100 on all current Linux systems
	longest        = 6   // multiple of its length that a measure of CPU may take
	lookAgain      = 50 * time.Millisecond
)

type totals struct{ requests, records, bytes int64 }

type outcome struct {
	Seconds          float64 `json:"seconds"`
	Requests         int64   `json:"requests"`
	Records          int64   `json:"records"`
	Bytes            int64   `json:"bytes"`
	BrokerCPUSeconds float64 `json:"broker_cpu_seconds"`
	LoadCPUSeconds   float64 `json:"load_cpu_seconds"`
}

type window struct {
	pids     []int // processes whose total CPU is measured
	warmup   time.Duration
	length   time.Duration
	maxBytes int64 // limit of written bytes, including the warm-up
	// A measure of CPU continues until the broker has used this much, or its length has passed several times: the clock
	// of a process ticks a hundred times a second, and on a busy machine a broker may get little CPU.
	minCPU float64
	looked time.Time

	begun     time.Time
	opened    time.Time
	before    totals
	brokerCPU float64
	loadCPU   float64
	isOpen    bool
}

// closes is called after each round of work. It opens the window when the warm-up is over, and returns true when it
// ends. A load that writes very fast may spend a quarter of its bytes on the warm-up, so that enough is left for the
// measure.
func (w *window) closes(now time.Time, total totals) (bool, error) {
	if w.begun.IsZero() {
		w.begun = now
	}
	if w.isOpen {
		if w.maxBytes > 0 && total.bytes >= w.maxBytes {
			return true, nil
		}
		return w.isOver(now)
	}
	if now.Sub(w.begun) < w.warmup && (w.maxBytes == 0 || total.bytes < w.maxBytes/4) {
		return false, nil
	}
	cpu, err := cpuSeconds(w.pids)
	w.brokerCPU, w.loadCPU, w.before = cpu, ownCPUSeconds(), total
	w.opened, w.isOpen = time.Now(), true
	return false, err
}

func (w *window) isOver(now time.Time) (bool, error) {
	passed := now.Sub(w.opened)
	if passed < w.length || (w.minCPU > 0 && passed < longest*w.length && now.Sub(w.looked) < lookAgain) {
		return false, nil
	}
	if w.minCPU == 0 || passed >= longest*w.length {
		return true, nil
	}
	w.looked = now
	cpu, err := cpuSeconds(w.pids)
	return cpu-w.brokerCPU >= w.minCPU, err
}

func (w *window) outcome(total totals) (outcome, error) {
	seconds, own := time.Since(w.opened).Seconds(), ownCPUSeconds()
	cpu, err := cpuSeconds(w.pids)
	return outcome{
		Seconds:          seconds,
		Requests:         total.requests - w.before.requests,
		Records:          total.records - w.before.records,
		Bytes:            total.bytes - w.before.bytes,
		BrokerCPUSeconds: cpu - w.brokerCPU,
		LoadCPUSeconds:   own - w.loadCPU,
	}, err
}

func ownCPUSeconds() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

type process struct {
	parent int
	ticks  int64 // user and system, of the process and its waited-for children
}

// cpuSeconds is the CPU time of these processes and all their descendants; 0 without a process.
func cpuSeconds(pids []int) (float64, error) {
	if len(pids) == 0 {
		return 0, nil
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	processes := map[int]process{}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil { // the process may have ended since
			if id, found, ok := parseStat(string(text)); ok {
				processes[id] = found
			}
		}
	}
	wanted := map[int]bool{}
	for _, pid := range pids {
		if _, ok := processes[pid]; !ok {
			return 0, fmt.Errorf("the broker, process %d, is gone", pid)
		}
		wanted[pid] = true
	}
	ticks := int64(0)
	for id, one := range processes {
		for up := id; up > 1; up = processes[up].parent {
			if wanted[up] {
				ticks += one.ticks
				break
			}
		}
	}
	return float64(ticks) / ticksPerSecond, nil
}

// parseStat reads a line of /proc/<pid>/stat. The name, in parentheses, may contain blanks and parentheses itself.
func parseStat(text string) (id int, found process, ok bool) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return 0, process{}, false
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 15 {
		return 0, process{}, false
	}
	id, err := strconv.Atoi(strings.TrimSpace(text[:open]))
	found.parent, _ = strconv.Atoi(fields[1])
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, _ := strconv.ParseInt(field, 10, 64)
		found.ticks += ticks
	}
	return id, found, err == nil
}
