package lab

import "syscall"

// endWithThis ends a program when this process does, however it ends.
func endWithThis() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
