package machine

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	const rest = " 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 4242 1000 10 18446744073709551615"
	for what, test := range map[string]struct {
		content string
		want    stat
		fails   bool
	}{
		"plain":                      {"12 (cat) S" + rest, stat{'S', 3, 4242}, false},
		"spaces in the name":         {"12 (my cat) R" + rest, stat{'R', 3, 4242}, false},
		"parentheses in the name":    {"12 (a) Z 9 (b) S" + rest, stat{'S', 3, 4242}, false},
		"cut short":                  {"12 (cat) S 1 1", stat{}, true},
		"nothing":                    {"", stat{}, true},
		"start time is not a number": {"12 (cat) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 x 1", stat{}, true},
		"threads are not a number":   {"12 (cat) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 x 0 1 1", stat{}, true},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := parseStat([]byte(test.content))
			require.Equal(t, test.fails, err != nil, "%v", err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestEnded(t *testing.T) {
	require.True(t, stat{state: 'Z', threads: 1}.ended())
	require.True(t, stat{state: 'X'}.ended())
	require.False(t, stat{state: 'S', threads: 1}.ended())
	require.False(t, stat{state: 'Z', threads: 2}.ended(), "other threads still end the machine")
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
