!> sparsebatch for Fortran 2018: a module over the C library, as source, to be compiled by the
!> compiler of the program. `sparsebatch.h` says what each function does.
!>
!>     type(sb_context) :: context; type(sb_batch) :: batch; type(sb_solver) :: solver
!>     call context%create()
!>     call batch%uniform(context, nitems, row_ptr, col_idx)          ! indices from 1
!>     call solver%create(batch, values)                              ! values(nnz, nitems)
!>     call solver%solve(b, x)                                        ! b(n, nitems), x(n, nitems)
!>
!> Arrays are real64 or real32, of rank 1 or 2 and contiguous, as the batch says (`kind`): those of
!> the other kind are refused. On a GPU they are the `c_ptr` of memory there, with its number of
!> elements. Subroutines have `stat` (SB_OK or a code of an error) and `errmsg`; without `stat` an
!> error stops the program.
!>
!> Arrays of values (`create`, `set_values`) are read where they lie, by every solve: they have the
!> attribute `target` and live as long as the solver, or until it gets others. The compiler refuses
!> what is no contiguous target: an expression, a section with a stride. What `shift` and `solve`
!> take is not needed after the call.
!>
!> Objects destroy themselves at the end of their scope. Do not assign one to another (`a = b`):
!> that copies the handle, and the first of the two to end destroys the object of both.
!>
!> Threads: as in C, a solver serves one call at a time.
module sparsebatch
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: real32, real64, int64, error_unit
    implicit none
    private

    public :: sb_context, sb_batch, sb_solver, sb_options, sb_outcome_name
    public :: sb_ranks, sb_ranks_shares

    integer, parameter, public :: SB_OK = 0, SB_ERROR_ARGUMENT = 1, SB_ERROR_FORMAT = 2, &
        SB_ERROR_UNSUPPORTED = 3, SB_ERROR_OUT_OF_MEMORY = 4, SB_ERROR_GPU = 5, &
            SB_ERROR_NOT_FACTORED = 6, &
        SB_ERROR_STOPPED = 7, SB_ERROR_INTERNAL = 8, SB_ERROR_BAD_HANDLE = 9, SB_ERROR_BUSY = 10, &
        SB_ERROR_FORKED = 11, SB_ERROR_RANKS = 12
    integer(c_int32_t), parameter, public :: SB_HOST = 0, SB_DEVICE = 1
    integer(c_int32_t), parameter, public :: SB_ITEM_MAJOR = 0, SB_INTERLEAVED = 1, SB_SHARED = 2
    integer(c_int32_t), parameter, public :: SB_VALUES = 0, SB_KEPT = 1, SB_NEAR = 2, &
        SB_TRANSPOSED = 3, &
        SB_KEPT_TRANSPOSED = 4
    integer(c_int32_t), parameter, public :: SB_GUESS_ZERO = 0, SB_GUESS_IN_X = 1
    !> The status of a system that was not active in its solve.
    integer, parameter, public :: SB_INACTIVE = 255

    !> Where and on which threads a program solves.
    type :: sb_context
        type(c_ptr) :: handle = c_null_ptr
    contains
        procedure :: create => context_create
        final :: context_final
    end type

    !> The patterns of a batch.
    type :: sb_batch
        type(c_ptr) :: handle = c_null_ptr
        !> real64 or real32; 0 where there is no batch.
        integer :: kind = 0
    contains
        procedure :: uniform => batch_uniform
        procedure :: ragged => batch_ragged
        final :: batch_final
    end type

    !> Options of a solver; blank texts are the defaults. Those of sb_solver_options that are not
    !> here keep their defaults.
    type :: sb_options
        character(len=16) :: method = '', precond = ''
        real(real64) :: rtol = -1, atol = 0
        integer :: maxiter = 1000
        integer(int64) :: nrhs = 1
        logical :: fallback = .true.
        integer(c_int32_t) :: space = SB_HOST
        type(c_ptr) :: stream = c_null_ptr
        !> Functions with the interface of C (c_funloc) that allocate memory of the GPU and take it
        !> back, and their last argument: see sb_allocate in sparsebatch.h.
        type(c_funptr) :: allocate = c_null_funptr, release = c_null_funptr
        type(c_ptr) :: allocator_data = c_null_ptr
    end type

    !> An analysed batch with its values.
    type :: sb_solver
        type(c_ptr) :: handle = c_null_ptr
        !> That of the batch; 0 where there is no solver.
        integer :: kind = 0
    contains
        procedure, private :: create_ptr, create_64, create_64_2, create_32, create_32_2
        !> create(batch, values [, options] [, stat, errmsg]); on a device (batch, pointer, nvalues,
        !> ...).
        generic :: create => create_ptr, create_64, create_64_2, create_32, create_32_2
        procedure, private :: values_ptr, values_64, values_64_2, values_32, values_32_2
        !> set_values(values [, stat, errmsg])
        generic :: set_values => values_ptr, values_64, values_64_2, values_32, values_32_2
        procedure, private :: shift_ptr, shift_64, shift_64_2, shift_32, shift_32_2
        !> shift(jacobian, dt [, stat, errmsg]): I/dt - J
        generic :: shift => shift_ptr, shift_64, shift_64_2, shift_32, shift_32_2
        procedure, private :: solve_ptr, solve_64, solve_64_2, solve_32, solve_32_2
        !> solve(b, x [, by] [, guess] [, nfailed] [, active] [, stat, errmsg]); active(nsystems):
        !> which systems are solved, the others keep their guess, or get 0
        generic :: solve => solve_ptr, solve_64, solve_64_2, solve_32, solve_32_2
        procedure :: factor => solver_factor
        !> set_limits([rtol] [, atol] [, maxiter] [, stat, errmsg]) of the solves that follow
        procedure :: set_limits => solver_set_limits
        !> outcomes(statuses [, residual_norms] [, iterations] [, stat, errmsg]) of the last solve
        procedure :: outcomes => solver_outcomes
        final :: solver_final
    end type

    !> The ranks of an MPI communicator, of which this process is one; a library without MPI makes
    !> none. All calls but `place` are collective: all ranks make them, in the same order, and an error
    !> that one finds is the error of all. Ranks do not destroy themselves: that is a collective call,
    !> too, before MPI is finalised.
    type :: sb_ranks
        type(c_ptr) :: handle = c_null_ptr
    contains
        !> create(context, comm [, seconds] [, stat, errmsg]); `comm` is the integer handle of a
        !> communicator, of mpi_f08 `comm%MPI_VAL`
        procedure :: create => ranks_create
        !> place([rank] [, nranks] [, local_rank] [, nlocal] [, nthreads] [, stat, errmsg])
        procedure :: place => ranks_place
        !> agree(status [, message] [, stat, errmsg]): whether the step before succeeded everywhere
        procedure :: agree => ranks_agree
        !> check_solver(solver [, stat, errmsg]): equal options, library and machine everywhere
        procedure :: check_solver => ranks_check_solver
        !> outcomes(solver, statuses [, residual_norms] [, iterations] [, stat, errmsg]) of all ranks
        procedure :: outcomes => ranks_outcomes
        procedure :: destroy => ranks_destroy
    end type

    type, bind(c) :: context_options
        integer(c_size_t) :: struct_size
        type(c_ptr) :: backend
        integer(c_int32_t) :: ordinal, threads
    end type

    type, bind(c) :: solver_options
        integer(c_size_t) :: struct_size
        type(c_ptr) :: method, precond, order, precond_precision, inner_precision, lu_form
        type(c_ptr) :: format, kernel
        integer(c_int64_t) :: block_size, nrhs
        real(c_double) :: rtol, atol
        integer(c_int32_t) :: maxiter, max_restarts
        type(c_ptr) :: rtol_each, atol_each, maxiter_each
        real(c_double) :: floor
        integer(c_int32_t) :: fallback, history, space, vectors
        type(c_ptr) :: stream
        type(c_funptr) :: allocate, release
        type(c_ptr) :: allocator_data
    end type

    type, bind(c) :: call_limits
        integer(c_size_t) :: struct_size
        real(c_double) :: rtol, atol
        integer(c_int64_t) :: maxiter
        type(c_ptr) :: rtol_each, atol_each, maxiter_each
    end type

    interface
        integer(c_int32_t) function c_limits_init(limits, size) bind(c, name='sb_limits_init')
            import
            type(call_limits) :: limits
            integer(c_size_t), value :: size
        end function
        integer(c_int32_t) function c_solver_set_limits(solver, limits) bind(c, &
            name='sb_solver_set_limits')
            import
            type(c_ptr), value :: solver
            type(call_limits) :: limits
        end function
        integer(c_int32_t) function c_solver_solve_with(solver, by, guess, b, nb, x, nx, limits, &
                active, nactive, nfailed) bind(c, name='sb_solver_solve_with')
            import
            type(c_ptr), value :: solver, b, x, limits
            integer(c_int32_t), value :: by, guess
            integer(c_int64_t), value :: nb, nx, nactive
            integer(c_int8_t), intent(in) :: active(*)
            integer(c_int64_t) :: nfailed
        end function
        integer(c_int32_t) function c_context_options_init(options, size) bind(c, &
            name='sb_context_options_init')
            import
            type(context_options) :: options
            integer(c_size_t), value :: size
        end function
        integer(c_int32_t) function c_solver_options_init(options, size) bind(c, &
            name='sb_solver_options_init')
            import
            type(solver_options) :: options
            integer(c_size_t), value :: size
        end function
        integer(c_int32_t) function c_context_create(options, handle) bind(c, &
            name='sb_context_create')
            import
            type(context_options) :: options
            type(c_ptr) :: handle
        end function
        integer(c_int32_t) function c_batch_uniform(context, dtype, nitems, nrows, ncols, nnz, &
            row_ptr, &
                col_idx, layout, index_base, handle) bind(c, name='sb_batch_uniform')
            import
            type(c_ptr), value :: context
            integer(c_int32_t), value :: dtype, layout, index_base
            integer(c_int64_t), value :: nitems, nrows, ncols, nnz
            integer(c_int32_t), intent(in) :: row_ptr(*), col_idx(*)
            type(c_ptr) :: handle
        end function
        integer(c_int32_t) function c_batch_ragged(context, dtype, nitems, nrows, ncols, nnz, &
            row_ptr, &
                col_idx, index_base, handle) bind(c, name='sb_batch_ragged')
            import
            type(c_ptr), value :: context, ncols
            integer(c_int32_t), value :: dtype, index_base
            integer(c_int64_t), value :: nitems
            integer(c_int64_t), intent(in) :: nrows(*), nnz(*)
            integer(c_int32_t), intent(in) :: row_ptr(*), col_idx(*)
            type(c_ptr) :: handle
        end function
        integer(c_int32_t) function c_solver_create(batch, values, nvalues, options, handle) &
                bind(c, name='sb_solver_create')
            import
            type(c_ptr), value :: batch, values
            integer(c_int64_t), value :: nvalues
            type(solver_options) :: options
            type(c_ptr) :: handle
        end function
        integer(c_int32_t) function c_solver_set_values(solver, values, nvalues) &
                bind(c, name='sb_solver_set_values')
            import
            type(c_ptr), value :: solver, values
            integer(c_int64_t), value :: nvalues
        end function
        integer(c_int32_t) function c_solver_shift(solver, jacobian, njacobian, dt, ndt) &
                bind(c, name='sb_solver_shift')
            import
            type(c_ptr), value :: solver, jacobian, dt
            integer(c_int64_t), value :: njacobian, ndt
        end function
        integer(c_int32_t) function c_solver_factor(solver) bind(c, name='sb_solver_factor')
            import
            type(c_ptr), value :: solver
        end function
        integer(c_int32_t) function c_solver_solve(solver, by, guess, b, nb, x, nx, nfailed) &
                bind(c, name='sb_solver_solve')
            import
            type(c_ptr), value :: solver, b, x
            integer(c_int32_t), value :: by, guess
            integer(c_int64_t), value :: nb, nx
            integer(c_int64_t) :: nfailed
        end function
        integer(c_int32_t) function c_solver_report(solver, report) bind(c, name='sb_solver_report')
            import
            type(c_ptr), value :: solver
            type(c_ptr) :: report
        end function
        integer(c_int32_t) function c_report_statuses(report, out, len) bind(c, &
            name='sb_report_statuses')
            import
            type(c_ptr), value :: report
            integer(c_int8_t) :: out(*)
            integer(c_int64_t), value :: len
        end function
        integer(c_int32_t) function c_report_residual_norms(report, out, len) &
                bind(c, name='sb_report_residual_norms')
            import
            type(c_ptr), value :: report
            real(c_double) :: out(*)
            integer(c_int64_t), value :: len
        end function
        integer(c_int32_t) function c_report_iterations(report, out, len) bind(c, &
            name='sb_report_iterations')
            import
            type(c_ptr), value :: report
            integer(c_int32_t) :: out(*)
            integer(c_int64_t), value :: len
        end function
        integer(c_int32_t) function c_report_sizes(report, nsystems, nconverged) &
                bind(c, name='sb_report_sizes')
            import
            type(c_ptr), value :: report, nconverged
            integer(c_int64_t) :: nsystems
        end function
        integer(c_int32_t) function c_ranks_create(context, comm, seconds, handle) &
                bind(c, name='sb_ranks_create')
            import
            type(c_ptr), value :: context
            integer(c_int32_t), value :: comm
            real(c_double), value :: seconds
            type(c_ptr) :: handle
        end function
        integer(c_int32_t) function c_ranks_destroy(handle) bind(c, name='sb_ranks_destroy')
            import
            type(c_ptr), value :: handle
        end function
        integer(c_int32_t) function c_ranks_place(ranks, rank, nranks, local_rank, nlocal, &
                nthreads) bind(c, name='sb_ranks_place')
            import
            type(c_ptr), value :: ranks
            integer(c_int32_t) :: rank, nranks, local_rank, nlocal, nthreads
        end function
        integer(c_int32_t) function c_ranks_shares(costs, nitems, nranks, first) &
                bind(c, name='sb_ranks_shares')
            import
            real(c_double), intent(in) :: costs(*)
            integer(c_int64_t), value :: nitems
            integer(c_int32_t), value :: nranks
            integer(c_int64_t) :: first(*)
        end function
        integer(c_int32_t) function c_ranks_agree(ranks, status, message) &
                bind(c, name='sb_ranks_agree')
            import
            type(c_ptr), value :: ranks, message
            integer(c_int32_t), value :: status
        end function
        integer(c_int32_t) function c_ranks_check_solver(ranks, solver) &
                bind(c, name='sb_ranks_check_solver')
            import
            type(c_ptr), value :: ranks, solver
        end function
        integer(c_int32_t) function c_ranks_report(ranks, report, whole) &
                bind(c, name='sb_ranks_report')
            import
            type(c_ptr), value :: ranks, report
            type(c_ptr) :: whole
        end function
        integer(c_int32_t) function c_last_error(context, buffer, len) bind(c, name='sb_last_error')
            import
            type(c_ptr), value :: context
            character(kind=c_char) :: buffer(*)
            integer(c_size_t), value :: len
        end function
        function c_outcome_name(code) bind(c, name='sb_outcome_name') result(name)
            import
            integer(c_int8_t), value :: code
            type(c_ptr) :: name
        end function
        integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
            import
            type(c_ptr), value :: text
        end function
        integer(c_int32_t) function c_context_destroy(handle) bind(c, name='sb_context_destroy')
            import
            type(c_ptr), value :: handle
        end function
        integer(c_int32_t) function c_batch_destroy(handle) bind(c, name='sb_batch_destroy')
            import
            type(c_ptr), value :: handle
        end function
        integer(c_int32_t) function c_solver_destroy(handle) bind(c, name='sb_solver_destroy')
            import
            type(c_ptr), value :: handle
        end function
        integer(c_int32_t) function c_report_destroy(handle) bind(c, name='sb_report_destroy')
            import
            type(c_ptr), value :: handle
        end function
    end interface

contains

    !> Hands an error to `stat` and `errmsg`, or stops the program with its message.
    subroutine conclude(status, stat, errmsg)
        integer(c_int32_t), intent(in) :: status
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        character(kind=c_char) :: buffer(512)
        character(len=512) :: message
        integer :: length
        integer(c_int32_t) :: ignored
        if (present(stat)) stat = status
        if (status == SB_OK) return
        ignored = c_last_error(c_null_ptr, buffer, size(buffer, kind=c_size_t))
        message = ''
        do length = 1, size(buffer)
            if (buffer(length) == c_null_char) exit
            message(length:length) = buffer(length)
        end do
        if (present(errmsg)) errmsg = message
        if (present(stat)) return
        write (error_unit, '(2a)') 'sparsebatch: ', trim(message)
        error stop 1
    end subroutine

    !> Hands an error of this module to `stat` and `errmsg`, or stops the program with its message.
    subroutine refuse(message, stat, errmsg)
        character(len=*), intent(in) :: message
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (present(errmsg)) errmsg = message
        if (present(stat)) then
            stat = SB_ERROR_ARGUMENT
            return
        end if
        write (error_unit, '(2a)') 'sparsebatch: ', message
        error stop 1
    end subroutine

    !> Whether a number is negative, which is refused.
    logical function is_negative(name, number, stat, errmsg)
        character(len=*), intent(in) :: name
        integer, intent(in) :: number
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        character(len=12) :: digits
        is_negative = number < 0
        if (.not. is_negative) return
        write (digits, '(i0)') number
        call refuse(name // ' is ' // trim(digits) // ', expected a number that is not negative', &
            stat, errmsg)
    end function

    !> Whether arrays have another kind than the batch, which is refused. Where there is no batch
    !> (0), the library says so.
    logical function is_other_kind(batch_kind, array_kind, stat, errmsg)
        integer, intent(in) :: batch_kind, array_kind
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        is_other_kind = batch_kind /= 0 .and. batch_kind /= array_kind
        if (.not. is_other_kind) return
        if (array_kind == real32) then
            call refuse('arrays are real32, expected real64 as the batch', stat, errmsg)
        else
            call refuse('arrays are real64, expected real32 as the batch', stat, errmsg)
        end if
    end function

    !> `backend`: 'cpu', 'gpu' or 'auto'; `threads`: of a pool of its own, 0 all cores.
    subroutine context_create(self, backend, ordinal, threads, stat, errmsg)
        class(sb_context), intent(inout) :: self
        character(len=*), intent(in), optional :: backend
        integer, intent(in), optional :: ordinal, threads
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        type(context_options) :: options
        character(kind=c_char, len=:), allocatable, target :: name
        integer(c_int32_t) :: status
        call context_final(self)
        if (present(threads)) then
            if (is_negative('threads', threads, stat, errmsg)) return
        end if
        status = c_context_options_init(options, c_sizeof(options))
        if (present(backend)) then
            name = trim(backend) // c_null_char
            options%backend = c_loc(name)
        end if
        if (present(ordinal)) options%ordinal = int(ordinal, c_int32_t)
        if (present(threads)) options%threads = int(threads, c_int32_t)
        if (status == SB_OK) status = c_context_create(options, self%handle)
        call conclude(status, stat, errmsg)
    end subroutine

    integer(c_int32_t) function dtype_of(kind)
        integer, intent(in), optional :: kind
        dtype_of = 0
        if (present(kind)) then
            if (kind == real32) dtype_of = 1
            if (kind /= real32 .and. kind /= real64) dtype_of = -1
        end if
    end function

    integer function kind_of(kind)
        integer, intent(in), optional :: kind
        kind_of = real64
        if (present(kind)) kind_of = kind
    end function

    !> nitems square matrices of one pattern; `kind`: real64 (default) or real32.
    subroutine batch_uniform(self, context, nitems, row_ptr, col_idx, layout, index_base, kind, &
        stat, errmsg)
        class(sb_batch), intent(inout) :: self
        type(sb_context), intent(in) :: context
        integer, intent(in) :: nitems
        integer(c_int32_t), intent(in), contiguous :: row_ptr(:), col_idx(:)
        integer(c_int32_t), intent(in), optional :: layout
        integer, intent(in), optional :: index_base, kind
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int32_t) :: placed, base
        integer(c_int64_t) :: nrows
        placed = SB_ITEM_MAJOR
        if (present(layout)) placed = layout
        base = 1
        if (present(index_base)) base = int(index_base, c_int32_t)
        nrows = size(row_ptr, kind=c_int64_t) - 1
        call batch_final(self)
        self%kind = kind_of(kind)
        call conclude(c_batch_uniform(context%handle, dtype_of(kind), int(nitems, c_int64_t), &
            nrows, nrows, &
            size(col_idx, kind=c_int64_t), row_ptr, col_idx, placed, base, self%handle), stat, &
                errmsg)
    end subroutine

    !> Square matrices of any sizes, in concatenated arrays: see sb_batch_ragged. `row_ptr` has
    !> sum(nrows) + size(nrows) elements and `col_idx` has sum(nnz).
    subroutine batch_ragged(self, context, nrows, nnz, row_ptr, col_idx, index_base, kind, stat, &
        errmsg)
        class(sb_batch), intent(inout) :: self
        type(sb_context), intent(in) :: context
        integer(c_int64_t), intent(in), contiguous :: nrows(:), nnz(:)
        integer(c_int32_t), intent(in), contiguous :: row_ptr(:), col_idx(:)
        integer, intent(in), optional :: index_base, kind
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int32_t) :: base
        call batch_final(self)
        if (size(nnz) /= size(nrows) .or. size(row_ptr) /= sum(nrows) + size(nrows) &
            .or. size(col_idx) /= sum(nnz)) then
            call refuse('row_ptr, col_idx or nnz is not as long as nrows says', stat, errmsg)
            return
        end if
        base = 1
        if (present(index_base)) base = int(index_base, c_int32_t)
        self%kind = kind_of(kind)
        call conclude(c_batch_ragged(context%handle, dtype_of(kind), size(nrows, kind=c_int64_t), &
            nrows, &
            c_null_ptr, nnz, row_ptr, col_idx, base, self%handle), stat, errmsg)
    end subroutine

    subroutine create_ptr(self, batch, values, nvalues, options, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        type(sb_batch), intent(in) :: batch
        type(c_ptr), intent(in) :: values
        integer(c_int64_t), intent(in) :: nvalues
        type(sb_options), intent(in), optional :: options
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        type(solver_options) :: all
        character(kind=c_char, len=17), target :: method, precond
        integer(c_int32_t) :: status
        call solver_final(self)
        status = c_solver_options_init(all, c_sizeof(all))
        if (present(options)) then
            if (is_negative('maxiter', options%maxiter, stat, errmsg)) return
            method = trim(options%method) // c_null_char
            precond = trim(options%precond) // c_null_char
            if (options%method /= '') all%method = c_loc(method)
            if (options%precond /= '') all%precond = c_loc(precond)
            all%rtol = options%rtol
            all%atol = options%atol
            all%maxiter = int(options%maxiter, c_int32_t)
            all%nrhs = options%nrhs
            all%fallback = merge(1_c_int32_t, 0_c_int32_t, options%fallback)
            all%space = options%space
            all%stream = options%stream
            all%allocate = options%allocate
            all%release = options%release
            all%allocator_data = options%allocator_data
        end if
        self%kind = batch%kind
        if (status == SB_OK) status = c_solver_create(batch%handle, values, nvalues, all, &
            self%handle)
        call conclude(status, stat, errmsg)
    end subroutine

    subroutine create_64(self, batch, values, options, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        type(sb_batch), intent(in) :: batch
        real(real64), intent(in), pointer, contiguous :: values(:)
        type(sb_options), intent(in), optional :: options
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call solver_final(self)
        if (is_other_kind(batch%kind, real64, stat, errmsg)) return
        call self%create(batch, c_loc(values), size(values, kind=c_int64_t), options, stat, errmsg)
    end subroutine

    subroutine create_64_2(self, batch, values, options, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        type(sb_batch), intent(in) :: batch
        real(real64), intent(in), pointer, contiguous :: values(:, :)
        type(sb_options), intent(in), optional :: options
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call solver_final(self)
        if (is_other_kind(batch%kind, real64, stat, errmsg)) return
        call self%create(batch, c_loc(values), size(values, kind=c_int64_t), options, stat, errmsg)
    end subroutine

    subroutine create_32(self, batch, values, options, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        type(sb_batch), intent(in) :: batch
        real(real32), intent(in), pointer, contiguous :: values(:)
        type(sb_options), intent(in), optional :: options
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call solver_final(self)
        if (is_other_kind(batch%kind, real32, stat, errmsg)) return
        call self%create(batch, c_loc(values), size(values, kind=c_int64_t), options, stat, errmsg)
    end subroutine

    subroutine create_32_2(self, batch, values, options, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        type(sb_batch), intent(in) :: batch
        real(real32), intent(in), pointer, contiguous :: values(:, :)
        type(sb_options), intent(in), optional :: options
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call solver_final(self)
        if (is_other_kind(batch%kind, real32, stat, errmsg)) return
        call self%create(batch, c_loc(values), size(values, kind=c_int64_t), options, stat, errmsg)
    end subroutine

    subroutine values_ptr(self, values, nvalues, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        type(c_ptr), intent(in) :: values
        integer(c_int64_t), intent(in) :: nvalues
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call conclude(c_solver_set_values(self%handle, values, nvalues), stat, errmsg)
    end subroutine

    subroutine values_64(self, values, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real64), intent(in), pointer, contiguous :: values(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real64, stat, errmsg)) return
        call self%set_values(c_loc(values), size(values, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine values_64_2(self, values, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real64), intent(in), pointer, contiguous :: values(:, :)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real64, stat, errmsg)) return
        call self%set_values(c_loc(values), size(values, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine values_32(self, values, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real32), intent(in), pointer, contiguous :: values(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real32, stat, errmsg)) return
        call self%set_values(c_loc(values), size(values, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine values_32_2(self, values, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real32), intent(in), pointer, contiguous :: values(:, :)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real32, stat, errmsg)) return
        call self%set_values(c_loc(values), size(values, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine shift_ptr(self, jacobian, njacobian, dt, ndt, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        type(c_ptr), intent(in) :: jacobian, dt
        integer(c_int64_t), intent(in) :: njacobian, ndt
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call conclude(c_solver_shift(self%handle, jacobian, njacobian, dt, ndt), stat, errmsg)
    end subroutine

    subroutine shift_64(self, jacobian, dt, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real64), intent(in), target, contiguous :: jacobian(:), dt(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real64, stat, errmsg)) return
        call self%shift(c_loc(jacobian), size(jacobian, kind=c_int64_t), c_loc(dt), &
            size(dt, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine shift_64_2(self, jacobian, dt, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real64), intent(in), target, contiguous :: jacobian(:, :), dt(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real64, stat, errmsg)) return
        call self%shift(c_loc(jacobian), size(jacobian, kind=c_int64_t), c_loc(dt), &
            size(dt, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine shift_32(self, jacobian, dt, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real32), intent(in), target, contiguous :: jacobian(:), dt(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real32, stat, errmsg)) return
        call self%shift(c_loc(jacobian), size(jacobian, kind=c_int64_t), c_loc(dt), &
            size(dt, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine shift_32_2(self, jacobian, dt, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real32), intent(in), target, contiguous :: jacobian(:, :), dt(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real32, stat, errmsg)) return
        call self%shift(c_loc(jacobian), size(jacobian, kind=c_int64_t), c_loc(dt), &
            size(dt, kind=c_int64_t), stat, errmsg)
    end subroutine

    subroutine solve_ptr(self, b, nb, x, nx, by, guess, nfailed, active, stat, &
        errmsg)
        class(sb_solver), intent(inout) :: self
        type(c_ptr), intent(in) :: b, x
        integer(c_int64_t), intent(in) :: nb, nx
        integer(c_int32_t), intent(in), optional :: by, guess
        integer(int64), intent(out), optional :: nfailed
        logical, intent(in), optional :: active(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int32_t) :: matrices, start, status
        integer(c_int64_t) :: failed
        integer(c_int8_t), allocatable :: flags(:)
        matrices = SB_VALUES
        if (present(by)) matrices = by
        start = SB_GUESS_ZERO
        if (present(guess)) start = guess
        failed = 0
        if (present(active)) then
            allocate (flags(size(active)))
            flags = merge(1_c_int8_t, 0_c_int8_t, active)
            status = c_solver_solve_with(self%handle, matrices, start, b, nb, x, nx, c_null_ptr, &
                flags, size(flags, kind=c_int64_t), failed)
        else
            status = c_solver_solve(self%handle, matrices, start, b, nb, x, nx, failed)
        end if
        if (present(nfailed)) nfailed = failed
        call conclude(status, stat, errmsg)
    end subroutine

    subroutine solve_64(self, b, x, by, guess, nfailed, active, stat, &
        errmsg)
        class(sb_solver), intent(inout) :: self
        real(real64), intent(in), target, contiguous :: b(:)
        real(real64), intent(inout), target, contiguous :: x(:)
        integer(c_int32_t), intent(in), optional :: by, guess
        integer(int64), intent(out), optional :: nfailed
        logical, intent(in), optional :: active(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real64, stat, errmsg)) return
        call self%solve(c_loc(b), size(b, kind=c_int64_t), c_loc(x), size(x, kind=c_int64_t), by, &
            guess, &
            nfailed, active, stat, errmsg)
    end subroutine

    subroutine solve_64_2(self, b, x, by, guess, nfailed, active, stat, &
        errmsg)
        class(sb_solver), intent(inout) :: self
        real(real64), intent(in), target, contiguous :: b(:, :)
        real(real64), intent(inout), target, contiguous :: x(:, :)
        integer(c_int32_t), intent(in), optional :: by, guess
        integer(int64), intent(out), optional :: nfailed
        logical, intent(in), optional :: active(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real64, stat, errmsg)) return
        call self%solve(c_loc(b), size(b, kind=c_int64_t), c_loc(x), size(x, kind=c_int64_t), by, &
            guess, &
            nfailed, active, stat, errmsg)
    end subroutine

    subroutine solve_32(self, b, x, by, guess, nfailed, active, stat, &
        errmsg)
        class(sb_solver), intent(inout) :: self
        real(real32), intent(in), target, contiguous :: b(:)
        real(real32), intent(inout), target, contiguous :: x(:)
        integer(c_int32_t), intent(in), optional :: by, guess
        integer(int64), intent(out), optional :: nfailed
        logical, intent(in), optional :: active(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real32, stat, errmsg)) return
        call self%solve(c_loc(b), size(b, kind=c_int64_t), c_loc(x), size(x, kind=c_int64_t), by, &
            guess, &
            nfailed, active, stat, errmsg)
    end subroutine

    subroutine solve_32_2(self, b, x, by, guess, nfailed, active, stat, &
        errmsg)
        class(sb_solver), intent(inout) :: self
        real(real32), intent(in), target, contiguous :: b(:, :)
        real(real32), intent(inout), target, contiguous :: x(:, :)
        integer(c_int32_t), intent(in), optional :: by, guess
        integer(int64), intent(out), optional :: nfailed
        logical, intent(in), optional :: active(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        if (is_other_kind(self%kind, real32, stat, errmsg)) return
        call self%solve(c_loc(b), size(b, kind=c_int64_t), c_loc(x), size(x, kind=c_int64_t), by, &
            guess, &
            nfailed, active, stat, errmsg)
    end subroutine

    !> Other tolerances and iteration limits for the solves that follow; those that are not given
    !> stay.
    subroutine solver_set_limits(self, rtol, atol, maxiter, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        real(real64), intent(in), optional :: rtol, atol
        integer, intent(in), optional :: maxiter
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        type(call_limits) :: limits
        integer(c_int32_t) :: status
        if (present(maxiter)) then
            if (is_negative('maxiter', maxiter, stat, errmsg)) return
        end if
        status = c_limits_init(limits, c_sizeof(limits))
        if (present(rtol)) limits%rtol = rtol
        if (present(atol)) limits%atol = atol
        if (present(maxiter)) limits%maxiter = maxiter
        if (status == SB_OK) status = c_solver_set_limits(self%handle, limits)
        call conclude(status, stat, errmsg)
    end subroutine

    subroutine solver_factor(self, stat, errmsg)
        class(sb_solver), intent(inout) :: self
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call conclude(c_solver_factor(self%handle), stat, errmsg)
    end subroutine

    !> How each system of the last solve ended: one element for each.
    subroutine solver_outcomes(self, statuses, residual_norms, iterations, stat, errmsg)
        class(sb_solver), intent(in) :: self
        integer, intent(out) :: statuses(:)
        real(real64), intent(out), contiguous, optional :: residual_norms(:)
        integer(c_int32_t), intent(out), contiguous, optional :: iterations(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int32_t) :: status, ignored
        type(c_ptr) :: report
        status = c_solver_report(self%handle, report)
        if (status == SB_OK) then
            status = read_outcomes(report, statuses, residual_norms, iterations)
            ignored = c_report_destroy(report)
        end if
        call conclude(status, stat, errmsg)
    end subroutine

    !> Copies what a report says of its systems.
    integer(c_int32_t) function read_outcomes(report, statuses, residual_norms, iterations) &
            result(status)
        type(c_ptr), intent(in) :: report
        integer, intent(out) :: statuses(:)
        real(real64), intent(out), contiguous, optional :: residual_norms(:)
        integer(c_int32_t), intent(out), contiguous, optional :: iterations(:)
        integer(c_int8_t) :: codes(size(statuses))
        status = c_report_statuses(report, codes, size(codes, kind=c_int64_t))
        if (status == SB_OK) statuses = iand(int(codes), 255)
        if (status == SB_OK .and. present(residual_norms)) then
            status = c_report_residual_norms(report, residual_norms, size(residual_norms, &
                kind=c_int64_t))
        end if
        if (status == SB_OK .and. present(iterations)) then
            status = c_report_iterations(report, iterations, size(iterations, kind=c_int64_t))
        end if
    end function

    !> The ranks of a communicator, which is duplicated and may be freed afterwards. Waits at most
    !> `seconds` (default 60) for the other ranks to come here.
    subroutine ranks_create(self, context, comm, seconds, stat, errmsg)
        class(sb_ranks), intent(inout) :: self
        type(sb_context), intent(in) :: context
        integer, intent(in) :: comm
        real(real64), intent(in), optional :: seconds
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        real(c_double) :: limit
        if (c_associated(self%handle)) then
            call refuse('the ranks exist, expected destroy before', stat, errmsg)
            return
        end if
        limit = 60
        if (present(seconds)) limit = seconds
        call conclude(c_ranks_create(context%handle, int(comm, c_int32_t), limit, self%handle), &
            stat, errmsg)
    end subroutine

    !> The number of this rank, from 0, and of all ranks; those of its host; and the threads that this
    !> rank should use.
    subroutine ranks_place(self, rank, nranks, local_rank, nlocal, nthreads, stat, errmsg)
        class(sb_ranks), intent(in) :: self
        integer, intent(out), optional :: rank, nranks, local_rank, nlocal, nthreads
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int32_t) :: places(5), status
        places = 0
        status = c_ranks_place(self%handle, places(1), places(2), places(3), places(4), places(5))
        if (present(rank)) rank = places(1)
        if (present(nranks)) nranks = places(2)
        if (present(local_rank)) local_rank = places(3)
        if (present(nlocal)) nlocal = places(4)
        if (present(nthreads)) nthreads = places(5)
        call conclude(status, stat, errmsg)
    end subroutine

    !> Divides items into consecutive shares of about equal cost, one for each rank: rank r, from 0 on,
    !> gets the items from first(r + 1) to first(r + 2) - 1. `first` has one element more than there are
    !> ranks. No collective call: ranks with the same costs get the same shares.
    subroutine sb_ranks_shares(costs, first, stat, errmsg)
        real(real64), intent(in), contiguous :: costs(:)
        integer(int64), intent(out), contiguous :: first(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int32_t) :: status
        if (size(first) < 2) then
            call refuse('first has no element for a rank', stat, errmsg)
            return
        end if
        first = 0
        status = c_ranks_shares(costs, size(costs, kind=c_int64_t), &
            int(size(first) - 1, c_int32_t), first)
        if (status == SB_OK) first = first + 1
        call conclude(status, stat, errmsg)
    end subroutine

    !> Ends a step that may fail on one rank: each gives the status of its own part. All get SB_OK where
    !> all gave it, else SB_ERROR_RANKS with the message of the lowest rank that failed.
    subroutine ranks_agree(self, status, message, stat, errmsg)
        class(sb_ranks), intent(in) :: self
        integer, intent(in) :: status
        character(len=*), intent(in), optional :: message
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        character(kind=c_char, len=:), allocatable, target :: text
        type(c_ptr) :: address
        address = c_null_ptr
        if (present(message)) then
            text = trim(message) // c_null_char
            address = c_loc(text)
        end if
        call conclude(c_ranks_agree(self%handle, int(status, c_int32_t), address), stat, errmsg)
    end subroutine

    subroutine ranks_check_solver(self, solver, stat, errmsg)
        class(sb_ranks), intent(in) :: self
        type(sb_solver), intent(in) :: solver
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        call conclude(c_ranks_check_solver(self%handle, solver%handle), stat, errmsg)
    end subroutine

    !> How each system of the last solves of all ranks ended, in the order of ranks: on rank 0; the
    !> other ranks get arrays without elements.
    subroutine ranks_outcomes(self, solver, statuses, residual_norms, iterations, stat, errmsg)
        class(sb_ranks), intent(in) :: self
        type(sb_solver), intent(in) :: solver
        integer, allocatable, intent(out) :: statuses(:)
        real(real64), allocatable, intent(out), optional :: residual_norms(:)
        integer(c_int32_t), allocatable, intent(out), optional :: iterations(:)
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int64_t) :: nsystems
        integer(c_int32_t) :: status, ignored
        type(c_ptr) :: report, whole
        report = c_null_ptr
        whole = c_null_ptr
        nsystems = 0
        ! A rank without a report takes part with none, which is the error of all.
        ignored = c_solver_report(solver%handle, report)
        status = c_ranks_report(self%handle, report, whole)
        if (c_associated(report)) ignored = c_report_destroy(report)
        if (c_associated(whole)) status = c_report_sizes(whole, nsystems, c_null_ptr)
        allocate (statuses(nsystems))
        if (present(residual_norms)) allocate (residual_norms(nsystems))
        if (present(iterations)) allocate (iterations(nsystems))
        if (c_associated(whole)) then
            status = read_outcomes(whole, statuses, residual_norms, iterations)
            ignored = c_report_destroy(whole)
        end if
        call conclude(status, stat, errmsg)
    end subroutine

    !> Destroys the ranks, before MPI is finalised.
    subroutine ranks_destroy(self, stat, errmsg)
        class(sb_ranks), intent(inout) :: self
        integer, intent(out), optional :: stat
        character(len=*), intent(inout), optional :: errmsg
        integer(c_int32_t) :: status
        status = c_ranks_destroy(self%handle)
        self%handle = c_null_ptr
        call conclude(status, stat, errmsg)
    end subroutine

    !> The byte of a status.
    integer(c_int8_t) function code_of(status)
        integer, intent(in) :: status
        code_of = int(merge(status - 256, status, status > 127), c_int8_t)
    end function

    !> The name of a status, such as Converged (0).
    function sb_outcome_name(status) result(name)
        integer, intent(in) :: status
        character(len=:), allocatable :: name
        character(kind=c_char), pointer :: text(:)
        type(c_ptr) :: address
        integer :: place
        address = c_outcome_name(code_of(status))
        name = ''
        if (.not. c_associated(address)) return
        call c_f_pointer(address, text, [c_strlen(address)])
        do place = 1, size(text)
            name = name // text(place)
        end do
    end function

    subroutine context_final(self)
        type(sb_context), intent(inout) :: self
        integer(c_int32_t) :: ignored
        if (c_associated(self%handle)) ignored = c_context_destroy(self%handle)
        self%handle = c_null_ptr
    end subroutine

    subroutine batch_final(self)
        type(sb_batch), intent(inout) :: self
        integer(c_int32_t) :: ignored
        if (c_associated(self%handle)) ignored = c_batch_destroy(self%handle)
        self%handle = c_null_ptr
        self%kind = 0
    end subroutine

    subroutine solver_final(self)
        type(sb_solver), intent(inout) :: self
        integer(c_int32_t) :: ignored
        if (c_associated(self%handle)) ignored = c_solver_destroy(self%handle)
        self%handle = c_null_ptr
        self%kind = 0
    end subroutine

end module sparsebatch
