package node
import (
 "testing"
 _ "k8s.io/client-go/kubernetes/fake"
 _ "github.com/stretchr/testify/require"
)
func TestX(t *testing.T){}
