package mps

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// answerPatience is how long a daemon may take for one answer, the start of the program that asks
// included, for which a node that is short of CPU needs seconds.
const answerPatience = 15 * time.Second

// ask tells the daemon of a folder commands, and returns what it says.
func (s *Supervisor) ask(ctx context.Context, f folder, commands ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	cmd := s.command(ctx, launch{dir: f, ask: true})
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	said := strings.TrimSpace(out.String())
	if ctx.Err() != nil {
		return said, fmt.Errorf("MPS daemon %s does not answer to %s within %s", f.id(), strings.Join(commands, ", "), answerPatience)
	}
	if err != nil {
		return said, fmt.Errorf("tell MPS daemon %s to %s: %w: %s", f.id(), strings.Join(commands, ", "), err,
			strings.Join(strings.Fields(said+" "+errs.String()), " "))
	}
	return said, nil
}

// Run runs a program of the driver on the host, nvidia-smi for instance, or one of the
// host's own, like modprobe, and returns what it says. It works without a folder for
// daemons.
func (s *Supervisor) Run(ctx context.Context, program string, args ...string) ([]byte, error) {
	return s.command(ctx, launch{program: program, options: args}).CombinedOutput()
}

// command is the launcher's, to be started. It ends when ctx does.
func (s *Supervisor) command(ctx context.Context, l launch) *exec.Cmd {
	l.hostRoot, l.driverRoot, l.shmSize = s.cfg.HostRoot, s.cfg.DriverRoot, s.cfg.ShmSize
	launcher := s.cfg.Launcher
	if len(launcher) == 0 {
		launcher = []string{"/proc/self/exe", LaunchCommand}
	}
	cmd := exec.CommandContext(ctx, launcher[0], append(launcher[1:len(launcher):len(launcher)], l.arguments()...)...)
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	return cmd
}

// setUp gives a daemon its limits, and reads back that it has them.
func (s *Supervisor) setUp(ctx context.Context, f folder, spec Spec) error {
	var set []string
	for ordinal, d := range spec.Devices {
		if d.MemoryLimit > 0 {
			set = append(set, fmt.Sprintf("set_default_device_pinned_mem_limit %d %dM", ordinal, d.MemoryLimit/mib))
		}
	}
	if spec.ThreadPercentage > 0 {
		set = append(set, fmt.Sprintf("set_default_active_thread_percentage %d", spec.ThreadPercentage))
	}
	if len(set) == 0 {
		return nil
	}
	said, err := s.ask(ctx, f, set...)
	if err != nil {
		return err
	}
	for ordinal, d := range spec.Devices {
		if d.MemoryLimit == 0 {
			continue
		}
		question := fmt.Sprintf("get_default_device_pinned_mem_limit %d", ordinal)
		if err := s.readBack(ctx, f, question, said, float64(d.MemoryLimit/mib), parseMemory); err != nil {
			return err
		}
	}
	if spec.ThreadPercentage > 0 {
		return s.readBack(ctx, f, "get_default_active_thread_percentage", said, float64(spec.ThreadPercentage), parsePercentage)
	}
	return nil
}

// readBack asks the daemon for a limit and compares. said is what it said when it
// was told.
func (s *Supervisor) readBack(ctx context.Context, f folder, question, said string, want float64, parse func(string) reading) error {
	answer, err := s.ask(ctx, f, question)
	if err != nil {
		return err
	}
	if !parse(answer).is(want) {
		return fmt.Errorf("MPS daemon %s did not take its limits: it answers %q to %s, where %g was set (when told it said %q)", f.id(), answer, question, want, said)
	}
	return nil
}

// reading is a limit that a daemon answers, and how exactly it does: R580 answers "3G" where
// 4000M was set (seen on an H100).
type reading struct{ value, step float64 }

// is reports whether the daemon may mean a limit. Zero means that it tells none.
func (r reading) is(want float64) bool {
	return r.value > 0 && math.Abs(r.value-want) < r.step
}

// amount is a number with or without a unit: daemons answer "3G", "1024M".
var amount = regexp.MustCompile(`(\d+(?:\.\d+)?)\s*([KMGkmg]?)(?:i?[Bb])?\s*$`)

// parseMemory reads a daemon's limit, in MiB. One without a unit is in bytes.
func parseMemory(answer string) reading {
	match := amount.FindStringSubmatch(strings.TrimSpace(answer))
	if match == nil {
		return reading{}
	}
	value, _ := strconv.ParseFloat(match[1], 64) // infinite if it is too large
	unit := map[string]float64{"G": 1024, "M": 1, "K": 1. / 1024, "": 1. / mib}[strings.ToUpper(match[2])]
	return reading{value: value * unit, step: max(unit, 1)}
}

// parsePercentage reads a daemon's share of the processors: "25.0".
func parsePercentage(answer string) reading {
	fields := strings.Fields(answer)
	if len(fields) == 0 {
		return reading{}
	}
	value, _ := strconv.ParseFloat(strings.TrimSuffix(fields[len(fields)-1], "%"), 64) // zero if it is no number
	return reading{value: value, step: 0.5}
}
