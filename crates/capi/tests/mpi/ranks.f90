!> Ranks of MPI from Fortran, started by scripts/mpi-tests.sh: shares of items, the outcomes of all,
!> errors of one rank.
program ranks_of_mpi
    use, intrinsic :: iso_fortran_env, only: real64, int32, int64
    use mpi
    use sparsebatch
    implicit none
    integer, parameter :: n = 2, entries = 4, nitems = 12
    integer(int32), parameter :: row_ptr(n + 1) = [1, 3, 5], col_idx(entries) = [1, 2, 1, 2]
    real(real64), target, save :: values(entries, nitems), b(n, nitems), x(n, nitems)
    real(real64), allocatable :: norms(:)
    integer(int32), allocatable :: iterations(:)
    integer, allocatable :: statuses(:)
    integer(int64), allocatable :: first(:)
    type(sb_context) :: context
    type(sb_batch) :: batch
    type(sb_solver) :: solver, no_solver
    type(sb_options) :: options
    type(sb_ranks) :: ranks, none
    character(len=200) :: errmsg
    integer :: rank, nranks, own_rank, size_of_all, nlocal, nthreads, own, last, item, stat, ierror

    call context%create(threads=1)
    call ranks%create(context, 0, 1.0_real64, stat=stat, errmsg=errmsg)
    call refused(SB_ERROR_ARGUMENT, 'MPI does not run')
    call mpi_init(ierror)
    call mpi_comm_rank(MPI_COMM_WORLD, own_rank, ierror)
    call mpi_comm_size(MPI_COMM_WORLD, size_of_all, ierror)
    call ranks%create(context, MPI_COMM_WORLD)
    call ranks%create(context, MPI_COMM_WORLD, stat=stat, errmsg=errmsg)
    call refused(SB_ERROR_ARGUMENT, 'the ranks exist')
    call ranks%place(rank, nranks, nlocal=nlocal, nthreads=nthreads)
    call check(rank == own_rank .and. nranks == size_of_all, 'place')
    call check(nlocal >= 1 .and. nlocal <= nranks .and. nthreads >= 1, 'place on the host')

    allocate (first(nranks + 1))
    call sb_ranks_shares([(1.0_real64 + mod(item, 3), item = 1, nitems)], first)
    call check(first(1) == 1 .and. first(nranks + 1) == nitems + 1, 'shares')
    call sb_ranks_shares([-1.0_real64], first, stat, errmsg)
    call refused(SB_ERROR_ARGUMENT, 'costs')
    call sb_ranks_shares([1.0_real64], first(:1), stat, errmsg)
    call refused(SB_ERROR_ARGUMENT, 'no element for a rank')
    call sb_ranks_shares([(1.0_real64, item = 1, nitems)], first)
    own = int(first(rank + 2) - first(rank + 1))

    values = spread([4.0_real64, 1.0_real64, 1.0_real64, 3.0_real64], 2, nitems)
    ! The last system of the last rank has no solution.
    if (rank == nranks - 1 .and. own > 0) values(:, own) = 0
    b = spread([5.0_real64, 4.0_real64], 2, nitems)
    options%method = 'lu'
    options%fallback = .false.
    call batch%uniform(context, own, row_ptr, col_idx)
    call solver%create(batch, values(:, :own), options)
    call ranks%check_solver(solver)
    call solver%solve(b(:, :own), x(:, :own))
    call ranks%outcomes(solver, statuses, norms, iterations)
    call check(size(statuses) == merge(nitems, 0, rank == 0), 'number of outcomes')
    call check(size(norms) == size(statuses) .and. size(iterations) == size(statuses), 'arrays')
    if (rank == 0) then
        call check(all(statuses(:nitems - 1) == 0), 'statuses')
        call check(statuses(nitems) /= 0, 'the singular system')
        call check(all(norms(:nitems - 1) < 1e-9_real64), 'residuals')
        call check(all(iterations(:nitems - 1) >= 1), 'iterations')
    end if

    last = nranks - 1
    call ranks%agree(SB_OK)
    call ranks%agree(merge(SB_ERROR_OUT_OF_MEMORY, SB_OK, rank == last), 'no memory for the zones', &
        stat, errmsg)
    call refused(SB_ERROR_RANKS, 'SB_ERROR_OUT_OF_MEMORY, no memory for the zones')
    if (rank == last) then
        call ranks%outcomes(no_solver, statuses, stat=stat, errmsg=errmsg)
    else
        call ranks%outcomes(solver, statuses, stat=stat, errmsg=errmsg)
    end if
    call refused(SB_ERROR_RANKS, 'SB_ERROR_BAD_HANDLE')
    options%maxiter = merge(7, 1000, rank == last)
    call solver%create(batch, values(:, :own), options)
    call ranks%check_solver(solver, stat, errmsg)
    if (nranks > 1) call refused(SB_ERROR_RANKS, 'maxiter is 7')

    call ranks%destroy()
    call ranks%agree(SB_OK, stat=stat, errmsg=errmsg)
    call refused(SB_ERROR_BAD_HANDLE, 'ranks is NULL')
    call none%destroy()
    call mpi_finalize(ierror)

contains

    subroutine refused(code, part)
        integer, intent(in) :: code
        character(len=*), intent(in) :: part
        call check(stat == code .and. index(errmsg, part) > 0, trim(errmsg) // ', expected ' // part)
        stat = SB_OK
        errmsg = ''
    end subroutine

    subroutine check(holds, what)
        logical, intent(in) :: holds
        character(len=*), intent(in) :: what
        if (holds) return
        print '(2a)', 'failed: ', what
        error stop 1
    end subroutine
end program
