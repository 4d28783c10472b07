package terminal

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLiveReplacesWhatItDrew(t *testing.T) {
	var b strings.Builder
	l := Live{Out: &b}
	require.NoError(t, l.Draw("one\ntwo\n"))
	require.NoError(t, l.Draw("three\n"))
	require.NoError(t, l.Draw("four\n"))
	assert.Equal(t, "one\ntwo\n\r\x1b[2A\x1b[Jthree\n\r\x1b[A\x1b[Jfour\n", b.String())
}
