package machine

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 10 18446744073709551615"
	for what, test := range map[string]struct {
		stat  string
		start uint64
		state byte
		fails bool
	}{
		"plain":                      {"12 (cat)" + rest, 4242, 'S', false},
		"spaces in the name":         {"12 (my cat)" + rest, 4242, 'S', false},
		"parentheses in the name":    {"12 (a) Z 9 (b)" + rest, 4242, 'S', false},
		"cut short":                  {"12 (cat) S 1 1", 0, 0, true},
		"nothing":                    {"", 0, 0, true},
		"start time is not a number": {"12 (cat) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 x 1", 0, 0, true},
	} {
		t.Run(what, func(t *testing.T) {
			start, state, err := parseStat([]byte(test.stat))
			if test.fails {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.start, start)
			require.Equal(t, test.state, state)
		})
	}
}

func TestIdentityOfAReusedNumber(t *testing.T) {
	self, err := Identify(os.Getpid())
	require.NoError(t, err)
	require.True(t, self.Alive())

	for what, other := range map[string]Identity{
		"another start":  {Pid: self.Pid, Start: self.Start - 1, Boot: self.Boot},
		"another boot":   {Pid: self.Pid, Start: self.Start, Boot: "another"},
		"never recorded": {},
	} {
		require.False(t, other.Alive(), what)
		require.NoError(t, other.Kill(time.Second), "must not end us: %s", what)
	}
}

func TestKill(t *testing.T) {
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	identity, err := Identify(child.Process.Pid)
	require.NoError(t, err)
	require.True(t, identity.Alive())
	require.NoError(t, identity.Kill(10*time.Second))
	require.False(t, identity.Alive(), "one that nobody has reaped yet counts as ended")
	_ = child.Wait()
	require.NoError(t, identity.Kill(time.Second), "a second time")
}
