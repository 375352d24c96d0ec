#!/bin/sh
# Stands in for nvidia-cuda-mps-control: -d starts a process that lives until "quit" comes on another's input.
log="$FAKE_MPS_LOG"
case ${1:-} in
-d)
  [ -z "${FAKE_MPS_FAILS:-}" ] || { echo "no permission"; exit 3; }
  echo "start pipe=$CUDA_MPS_PIPE_DIRECTORY log=$CUDA_MPS_LOG_DIRECTORY" >>"$log"
  setsid sh -c 'sleep 60' >/dev/null 2>&1 </dev/null &
  pid=$!
  echo "daemon $pid" >>"$log"
  echo "$pid" >"$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
  ;;
*)
  read -r word rest
  echo "$word" >>"$log"
  [ -n "${FAKE_MPS_STAYS:-}" ] || kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid")"
  ;;
esac
