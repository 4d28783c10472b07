package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/usage"
)

// rounds are what is read, one after the other.
type rounds struct {
	all  []func() ([]usage.Node, error)
	at   []time.Time
	stop context.CancelFunc
}

func (r *rounds) read(context.Context) ([]usage.Node, error) {
	r.at = append(r.at, time.Now())
	if len(r.at) > len(r.all) {
		r.stop() // Ctrl-C
		return nil, context.Canceled
	}
	return r.all[len(r.at)-1]()
}

func answers(nodes ...usage.Node) func() ([]usage.Node, error) {
	return func() ([]usage.Node, error) { return nodes, nil }
}

func nodeWith(name string, bytes float64) usage.Node {
	v := usage.Values{MemoryUsed: &bytes}
	return usage.Node{Name: name, Values: v, GPUs: []usage.GPU{{Name: "gpu-" + name, Values: v, Users: []usage.User{{Namespace: "default", Pod: "pod-" + name, Values: v}}}}}
}

func silent(name string) usage.Node {
	return usage.Unanswered(name, "tranche-system", errors.New("no answer"))
}

// watchTop shows the rounds, and returns what was written and when they were read.
func watchTop(t *testing.T, what string, screen picture.Screen, all ...func() ([]usage.Node, error)) (written string, at []time.Duration, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from := &rounds{all: all, stop: cancel}
	var out bytes.Buffer
	r := &topRun{session: newSession(&out, screen, connection{}), flags: topFlags{interval: defaultInterval}, what: what}
	started := time.Now()
	err = r.watch(ctx, from.read)
	for _, when := range from.at {
		at = append(at, when.Sub(started))
	}
	return out.String(), at, err
}

func TestTopWatchWritesABlockForEachRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func() ([]usage.Node, error) {
			time.Sleep(7 * time.Second)
			return []usage.Node{nodeWith("a", 3<<30), nodeWith("b", 1<<30)}, nil
		}
		out, at, err := watchTop(t, "nodes", picture.Screen{Width: 80},
			answers(nodeWith("a", 1<<30), nodeWith("b", 1<<30)), answers(nodeWith("a", 2<<30), silent("b")), answers(nodeWith("a", 2<<30), silent("b")), slow,
			func() ([]usage.Node, error) { return nil, errors.New("connection refused") })
		require.NoError(t, err, "the user ends it")
		assert.Equal(t, []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second, 23 * time.Second, 28 * time.Second}, at)
		blocks := strings.Split(strings.TrimSpace(out), "\n\n")
		require.Len(t, blocks, 5)
		start := time.Now().Add(-28 * time.Second)
		for i, wants := range [][]string{
			{"a     1     1 GiB", "b     1     1 GiB"},
			{"a     1     2 GiB", "b     1     1 GiB   -        -       -      old: no answer"},
			{"b     0     -       -        -       -      no answer"},
			{"a     1     3 GiB", "b     1     1 GiB"},
			{"a     1     3 GiB   -        -       -      old: connection refused\n", "Note: the usage cannot be read: connection refused.\n"},
		} {
			assert.True(t, strings.HasPrefix(blocks[i], start.Add(at[i]).Format(time.TimeOnly)+"\n"), blocks[i])
			for _, want := range wants {
				assert.Contains(t, blocks[i]+"\n", want)
			}
		}
		assert.NotContains(t, out, "\x1b")
	})
}

func TestTopWatchRedraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, _, err := watchTop(t, "gpus", picture.Screen{Width: 80, Height: 40, Live: true}, answers(nodeWith("a", 1<<30)), answers(silent("a")))
		require.NoError(t, err)
		before, after, ok := strings.Cut(out, "\x1b[J")
		require.True(t, ok)
		assert.Contains(t, before, "a: 1 GPU, memory 1 GiB, compute -, engine -, power -\n")
		assert.Contains(t, after, "a: 1 GPU, memory 1 GiB, compute -, engine -, power -; old: no answer\n")
	})
}

func TestTopWatchOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, _, err := watchTop(t, "pods", picture.Screen{Width: 80}, answers(nodeWith("a", 1<<30)), answers(silent("a")), answers(silent("a")))
		require.NoError(t, err)
		assert.Equal(t, 2, strings.Count(out, "pod-a"))
		assert.Contains(t, out, "Note: The values of the pods of a are old (no answer).\n")
		assert.Contains(t, out, "Note: The pods of a are not known (no answer).\n")
	})
}

func TestTopWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, err := watchTop(t, "", picture.Screen{}, func() ([]usage.Node, error) { return nil, errors.New("not allowed") })
		require.EqualError(t, err, "not allowed")
	})
	for want, args := range map[string]string{
		"--watch draws, or writes a block for each round: leave out -o json": "-w -o json",
		"--interval 500ms: use at least 1s":                                  "--watch --interval 500ms",
		"--interval is the time between two rounds of --watch: add --watch":  "--interval 2s",
	} {
		_, err := run(t, append([]string{"top"}, strings.Fields(args)...)...)
		require.EqualError(t, err, want)
	}
}
