package nvtools

import (
	"fmt"
	"strconv"
	"strings"
)

// settings are what a daemon was told, the defaults of servers to come.
type settings struct {
	// devices is how many the daemon serves; 0: it was told none, and takes any.
	devices int
	// memory is in MiB by ordinal.
	memory map[int]int64
	// percentage of the processors.
	percentage float64
	// ignore makes it deaf.
	ignore bool
}

func newSettings(devices int) *settings {
	return &settings{devices: devices, memory: map[int]int64{}, percentage: 100}
}

// maxMemory is more than any GPU has, in MiB: 1 PiB.
const maxMemory = 1 << 30

// answer does what a line of commands about settings says. ok is false for other
// commands.
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
	if err != nil || ordinal < 0 || s.devices > 0 && ordinal >= s.devices {
		return 0, "Invalid device " + strconv.Quote(word)
	}
	return ordinal, ""
}

func (s *settings) setMemory(device, value string) string {
	ordinal, problem := s.ordinal(device)
	if problem != "" {
		return problem
	}
	mib, ok := parseMemory(value)
	if !ok {
		return "Invalid memory limit " + strconv.Quote(value)
	}
	if !s.ignore {
		s.memory[ordinal] = mib
	}
	return ""
}

// parseMemory reads an integer and M or G, into MiB.
func parseMemory(value string) (mib int64, ok bool) {
	unit := int64(1)
	digits, ok := strings.CutSuffix(value, "M")
	if !ok {
		unit = 1024
		if digits, ok = strings.CutSuffix(value, "G"); !ok {
			return 0, false
		}
	}
	mib, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || mib < 0 || mib > maxMemory/unit {
		return 0, false
	}
	return mib * unit, true
}

// formatMemory is what the daemon answers: whole GiB as "3G", else "1408M".
func formatMemory(mib int64) string {
	if mib > 0 && mib%1024 == 0 {
		return fmt.Sprintf("%dG", mib/1024)
	}
	return fmt.Sprintf("%dM", mib)
}

func (s *settings) setPercentage(word string) string {
	percentage, err := strconv.ParseFloat(word, 64)
	if err != nil || !(percentage > 0 && percentage <= 100) {
		return "Invalid percentage " + strconv.Quote(word)
	}
	if !s.ignore {
		s.percentage = percentage
	}
	return formatPercentage(percentage)
}

func formatPercentage(p float64) string { return strconv.FormatFloat(p, 'f', 1, 64) }
