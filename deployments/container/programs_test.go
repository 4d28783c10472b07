// Package container_test holds the ways to build the image against each other: with
// Docker, and without.
package container_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notInImage are the programs that people have on their own machines.
var notInImage = []string{"kubectl-tranche"}

// TestProgramsAreInTheImage: each program of the repository is built and copied, however
// the image is made, and a change of it gives the image another name.
func TestProgramsAreInTheImage(t *testing.T) {
	programs, err := os.ReadDir("../../cmd")
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	read := func(path string) string {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(content)
	}
	docker, script, makefile := read("Dockerfile"), read("../../test/image.sh"), read("../../Makefile")
	for _, program := range programs {
		name := program.Name()
		if _, err := os.Stat("../../cmd/" + name + "/main.go"); err != nil {
			continue // what programs share, and tests
		}
		if assert.Contains(t, makefile, "-o bin/"+name+" ./cmd/"+name+"\n"); !slices.Contains(notInImage, name) {
			assert.Regexp(t, `-o /out/`+name+` \./cmd/`+name+`\n`, docker)
			assert.Contains(t, script, "--file bin/"+name+"=/usr/bin/"+name+":0755")
			assert.Regexp(t, `(?m)^tag=.* bin/`+name+`[ )]`, script)
		}
	}
}
