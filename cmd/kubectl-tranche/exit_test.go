package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/uninstall"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

func TestExitCodes(t *testing.T) {
	failed := cluster.ProgressOf(&gpunodes.WithProfile("node-a", "spx").Fails("cpx", "InUse", "", true).GPUNode)
	failed.Label = "tranche.dev/profile=cpx"
	_, notApplied := arrived(failed, "cpx")
	_, stopped := ended(cluster.Rollout{Result: cluster.RolloutStopped})
	_, complete := ended(cluster.Rollout{Result: cluster.RolloutComplete})
	late := newRun(&bytes.Buffer{}, nodeNamed("node-a"), follows("node-a", "spx"))
	late.flags.timeout = time.Nanosecond
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	_, unknown := run(t, "profiles", "--no-such-flag")
	for name, tt := range map[string]struct {
		err  error
		code int
	}{
		"nothing":         {nil, 0},
		"complete":        {complete, 0},
		"a wrong flag":    {unknown, exitError},
		"no such pod":     {errNotThere, exitError},
		"a failed switch": {notApplied, exitNegative},
		"a stopped plan":  {stopped, exitNegative},
		"wrapped":         {fmt.Errorf("x: %w", errors.Join(nil, stopped)), exitNegative},
		"not uninstalled": {unfinished(t.Context(), fmt.Errorf("x: %w", uninstall.ErrUnfinished)), exitUnfinished},
		"interrupted":     {unfinished(interrupted, context.Canceled), exitUnfinished},
		"uninstalled":     {unfinished(interrupted, nil), 0},
		"no answer":       {unfinished(t.Context(), context.DeadlineExceeded), exitError},
		"no time left":    {late.wait(t.Context(), "cpx"), exitUnfinished},
	} {
		assert.Equal(t, tt.code, exitCode(tt.err), "%s: %v", name, tt.err)
	}
}

// TestHelpListsExitCodes: each code has its meaning in the help.
func TestHelpListsExitCodes(t *testing.T) {
	out, err := run(t, "help", "exit-codes")
	require.NoError(t, err)
	for i, c := range exitCodes {
		assert.Equal(t, i, c.code)
		assert.Contains(t, out, fmt.Sprintf("%d\n  %s", c.code, c.meaning[:20]))
	}
	out, err = run(t, "--help")
	require.NoError(t, err)
	assert.Contains(t, out, "exit-codes")
}
