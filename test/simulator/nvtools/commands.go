package nvtools

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// settings are what a daemon was told, the defaults of servers to come.
type settings struct {
	// memory is in MiB by ordinal.
	memory map[int]int64
	// percentage of the processors.
	percentage float64
	// ignore makes it deaf.
	ignore bool
}

func newSettings() *settings {
	return &settings{memory: map[int]int64{}, percentage: 100}
}

// answer does what a line of commands about settings says, as the daemon of R580 does (seen on an
// H100). ok is false for other commands.
func (s *settings) answer(line string) (text string, ok bool) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", true
	}
	switch command, args := words[0], words[1:]; command {
	case "set_default_device_pinned_mem_limit":
		if len(args) != 2 {
			return usage(command, "<dev> <value>"), true
		}
		return s.setMemory(args[0], args[1]), true
	case "get_default_device_pinned_mem_limit":
		if len(args) != 1 {
			return usage(command, "<dev>"), true
		}
		ordinal, err := s.ordinal(args[0])
		if err != "" {
			return err, true
		}
		return formatMemory(s.memory[ordinal]), true
	case "set_default_active_thread_percentage":
		if len(args) != 1 {
			return usage(command, "<percentage>"), true
		}
		return s.setPercentage(args[0]), true
	case "get_default_active_thread_percentage":
		return formatPercentage(s.percentage), true
	}
	return "", false
}

func usage(command, args string) string {
	return fmt.Sprintf("Invalid usage: %s %s", command, args)
}

func (s *settings) ordinal(word string) (ordinal int, problem string) {
	ordinal, err := strconv.Atoi(word)
	if err != nil || ordinal < 0 {
		return 0, "Invalid device " + strconv.Quote(word)
	}
	return ordinal, ""
}

// setMemory says nothing, whatever the value. One that is no size removes the limit.
func (s *settings) setMemory(device, value string) string {
	ordinal, problem := s.ordinal(device)
	if problem != "" || s.ignore {
		return problem
	}
	s.memory[ordinal] = parseMemory(value)
	return ""
}

// parseMemory reads an integer with G, M or another letter or none, which count as M, into MiB.
func parseMemory(value string) int64 {
	unit := int64(1)
	if strings.HasSuffix(value, "G") {
		unit = 1024
	}
	mib, err := strconv.ParseInt(strings.TrimRight(value, "KMG"), 10, 64)
	if err != nil || mib < 0 || mib > math.MaxInt64/unit {
		return 0
	}
	return mib * unit
}

// formatMemory is what the daemon answers: "1023M", from 1 GiB on "3G" for 3072 to 4095 MiB, and
// nothing for no limit.
func formatMemory(mib int64) string {
	switch {
	case mib == 0:
		return ""
	case mib < 1024:
		return fmt.Sprintf("%dM", mib)
	}
	return fmt.Sprintf("%dG", mib/1024)
}

// setPercentage answers with what holds now. What is no percentage changes nothing.
func (s *settings) setPercentage(word string) string {
	percentage, err := strconv.ParseFloat(word, 64)
	if err == nil && percentage > 0 && percentage <= 100 && !s.ignore {
		s.percentage = percentage
	}
	return formatPercentage(s.percentage)
}

func formatPercentage(p float64) string { return strconv.FormatFloat(p, 'f', 1, 64) }
