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

// The window of a measure: what happens before it warms up and does not count. Broker CPU is read at its two ends, from
// the process, so that neither the start of the load nor the creation of a topic is in it.

const (
	ticksPerSecond = 100 // USER_HZ, which is 100 wherever Linux runs today
	longest        = 6   // times its length, a measure of CPU
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
	pid      int
	warmup   time.Duration
	length   time.Duration
	maxBytes int64 // what may be written, warm-up included
	// A measure of CPU goes on until the broker has used this much, or its length has passed several times: the clock of
	// a process ticks a hundred times a second, and on a busy machine a broker may hardly run.
	minCPU float64
	looked time.Time

	begun     time.Time
	opened    time.Time
	before    totals
	brokerCPU float64
	loadCPU   float64
	isOpen    bool
}

// closes is asked after each round of work. It opens the window when the warm-up is over, and says when it ends. A load
// that writes very fast may spend a quarter of its bytes on the warm-up, so that enough is left for the measure.
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
	cpu, err := cpuSeconds(w.pid)
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
	cpu, err := cpuSeconds(w.pid)
	return cpu-w.brokerCPU >= w.minCPU, err
}

func (w *window) outcome(total totals) (outcome, error) {
	seconds, own := time.Since(w.opened).Seconds(), ownCPUSeconds()
	cpu, err := cpuSeconds(w.pid)
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
	ticks  int64 // user and system, of its own and of the children that it has waited for
}

// cpuSeconds is what a process and all its descendants have used. Without a process it is nothing.
func cpuSeconds(pid int) (float64, error) {
	if pid == 0 {
		return 0, nil
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	processes := map[int]process{}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil { // it may have ended since
			if id, found, ok := parseStat(string(text)); ok {
				processes[id] = found
			}
		}
	}
	if _, ok := processes[pid]; !ok {
		return 0, fmt.Errorf("the broker, process %d, is gone", pid)
	}
	ticks := int64(0)
	for id, one := range processes {
		for up := id; up > 1; up = processes[up].parent {
			if up == pid {
				ticks += one.ticks
				break
			}
		}
	}
	return float64(ticks) / ticksPerSecond, nil
}

// parseStat reads a line of /proc/<pid>/stat. The name, in parentheses, may hold blanks and parentheses itself.
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
